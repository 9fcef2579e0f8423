"""Turns what the coordinator does into events: states, charges, and in simulations the scores behind a choice."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedhist.protocol.events import Charged, Event, Observer, Scored, StateEntered
from fedhist.protocol.privacy.ledger import Charge
from fedhist.server.coordinator import Asking, Planned, Released, State
from fedhist.server.selection import Selection


def tell_states(observe: Observer, *, simulated: bool) -> Callable[[State], None]:
    """An `on_state` for `run_rounds`. Scores are reported only in a simulation, which has the whole population."""

    def report(state: State) -> None:
        match state:
            case Planned():
                observe(StateEntered(state="planned", threshold=None))
            case Asking(request=request, handed=Selection() as selection):
                if simulated and request.plan.threshold is None:
                    given = selection.candidates
                    steps = request.plan.candidate_steps if given is None else given
                    candidates = np.ldexp(steps.astype(np.float64), -selection.threshold.bits).tolist()
                    scores, base, chances = (
                        None if one is None else one.astype(np.float64).tolist()
                        for one in (selection.scores, selection.base, selection.chances)
                    )
                    observe(Scored(candidates, scores, base, chances, chosen=selection.threshold.value))
                observe(StateEntered(state=request.round.under_way, threshold=selection.threshold.value))
            case Asking(request=request):
                observe(StateEntered(state=request.round.under_way, threshold=None))
            case Released(release=release):
                observe(StateEntered(state="released", threshold=release.threshold))

    return report


def tell_charges(observe: Observer, journal: Callable[[Charge], None] | None) -> Callable[[Charge], None]:
    """A journal that also reports each charge. The persistent one comes first: what it refuses never happened."""

    def record(charge: Charge) -> None:
        if journal is not None:
            journal(charge)
        observe(Charged(charge=charge.to_json()))

    return record


def to_all(*observers: Observer) -> Observer:
    """One observer that passes each event on to all of these."""

    def pass_on(event: Event) -> None:
        for observe in observers:
            observe(event)

    return pass_on
