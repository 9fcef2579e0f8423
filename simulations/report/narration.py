"""A run in words: one or two sentences for each event, with its numbers. For --verbose, traces and diagrams."""

from __future__ import annotations

from collections.abc import Callable

from fedhist.protocol.events import (
    TO_DEVICE,
    Charged,
    DroppedOut,
    Event,
    MessageSent,
    MessagesLeftOut,
    Observer,
    PhaseEnded,
    RoundAsked,
    RoundEnded,
    RunEnded,
    Scored,
    StateEntered,
    Viewed,
)
from fedhist.protocol.plan import Plan
from fedhist.protocol.rounds import Round
from fedhist.server.withholding import without_data
from fedhist.server.words import method, release_words, round_words

STAGES = {
    "advertising": "devices advertise fresh public keys",
    "sharing": "devices share the secrets of their masks with their neighbours, encrypted",
    "checking": "devices open what their neighbours shared, and name the neighbours whose shares do not open",
    "masking": "devices send their values under masks that cancel in the sum",
    "confirming": "devices sign the list of those that are still there",
    "unmasking": "the devices that are left hand over what removes the masks from the sum, and from nothing else",
}
"""What each stage of a masked round does."""


VIEW_WORDS = {
    False: ("Not masked: both sides see the same.", "the device sends", "the server sees"),
    True: ("Masked: the server sees numbers that tell nothing.", "before noise and masks", "sent and seen"),
}
"""How one device's message is shown, masked or not: a sentence, and the heads of both columns."""


def narrate(plan: Plan, say: Callable[[str], None], *, simulated: bool) -> Observer:
    """An observer that says each step as it happens, without single messages and times of phases.

    Unless `simulated`, times and sizes that depend on data are left out, as they are in a trace.
    """

    def observe(event: Event) -> None:
        if isinstance(event, StateEntered | Charged | RoundAsked | DroppedOut | RoundEnded):
            known = event if simulated else without_data(event, plan)
            if known is not None:
                say(in_words(known, plan))

    return observe


def in_words(event: Event, plan: Plan) -> str:
    """The event as a sentence or two."""
    match event:
        case StateEntered():
            words = _state(event, plan)
        case Charged(charge=charge):
            cost = "without any guarantee" if charge["epsilon"] is None else f"epsilon {charge['epsilon']:g}"
            words = (
                f"Charged for round {charge['round']}: {charge['name']}, {cost}, delta {charge['delta']:g}, "
                f"before any noise is drawn."
            )
        case RoundAsked() | RoundEnded() | MessagesLeftOut() | MessageSent() | DroppedOut():
            words = round_event_words(event)
        case Scored(candidates=candidates, chosen=chosen):
            words = f"The selector saw {len(candidates)} candidates and drew {chosen:,.4g}. (not private)"
        case Viewed(participant=who, places=places, masked=masked):
            same = "the server saw them masked" if masked else "the server saw the same"
            words = f"Of {who}, {len(places)} values of one message; {same}. (not private)"
        case PhaseEnded(phase=phase, seconds=seconds):
            words = f"Phase {phase} is over." if seconds is None else f"Phase {phase} took {seconds:.3f} s."
        case RunEnded(outcome="released"):
            words = "The run is over: one release, and the ledger says what it cost."
        case RunEnded(reason=reason):
            words = f"The run failed ({reason}); nothing was released."
        case _:
            words = event.kind
    return words


def _state(event: StateEntered, plan: Plan) -> str:
    where = "an open domain" if plan.items is None else f"{plan.items:,} items"
    match event.state:
        case "planned":
            return (
                f"The plan is fixed: {plan.users:,} users over {where}, {method(plan)}, epsilon "
                f"{plan.epsilon_select:g} for the threshold and {plan.epsilon:g} for the histogram."
            )
        case Round.DISCOVER.under_way:
            asks = round_words(plan)[Round.DISCOVER].asks
            return f"The first round begins: the server asks for {asks}, and uses only the sum."
        case Round.SELECT.under_way:
            asks = round_words(plan)[Round.SELECT].asks
            first = "The list of items is public now" if plan.discovers else "The first round begins"
            return f"{first}: the server asks for {asks}, and uses only the sum."
        case Round.RELEASE.under_way:
            how = "fixed by the plan" if plan.selector == "fixed" else f"chosen by {plan.selector}"
            largest = "The largest threshold" if plan.thresholds > 1 else "The threshold"
            asks = round_words(plan)[Round.RELEASE].asks
            return f"{largest} is {event.threshold:,.4g}, {how}. The server asks for {asks}."
        case _ if plan.discovers and event.threshold == 0:
            return "No item was found: nothing was released."
        case _:
            return (
                f"{release_words(plan).detail} The result is released, once; nothing else leaves the server."
            )


def round_event_words(event: RoundAsked | RoundEnded | MessagesLeftOut | MessageSent | DroppedOut) -> str:
    """An event of a round as a sentence."""
    stage = f", stage {event.stage}" if event.stage else ""
    match event:
        case RoundAsked(participants=participants):
            who = (
                "the cohort"
                if participants is None
                else f"{participants:,} participant{'' if participants == 1 else 's'}"
            )
            what = f": {STAGES[event.stage]}" if event.stage in STAGES else ""
            return f"The server asks {who} for round {event.round}{stage}{what}."
        case RoundEnded():
            users = "" if event.users is None else f", {event.users:,} users"
            size = "" if event.size is None else f", {event.size:,} bytes"
            done = "answered" if event.stage else "are in the sum"
            cohort = f"{event.answered:,} of {event.participants:,} participants {done}"
            took = "" if event.seconds is None else f", {event.seconds:.3f} s"
            return f"Round {event.round}{stage}: {cohort}{users}{size}{took}."
        case MessagesLeftOut():
            way = "to devices" if event.to == TO_DEVICE else "to the server"
            size = "" if event.size is None else f" with {event.size:,} bytes"
            return f"... and {event.messages:,} more messages {way}{size}, round {event.round}{stage}."
        case MessageSent():
            way = (
                f"server → {event.participant}" if event.to == TO_DEVICE else f"{event.participant} → server"
            )
            size = "" if event.size is None else f", {event.size:,} bytes"
            return f"{way}: round {event.round}{stage}{size}, plan {event.plan}."
        case DroppedOut():
            why = event.reason if event.refusal is None else f"{event.reason}: {event.refusal}"
            return f"{event.participant} drops out of round {event.round}{stage} ({why})."
