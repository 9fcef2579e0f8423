"""What tells of data outside of the guarantee, and is left out wherever the truth was not asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fedhist.protocol.events import TO_DEVICE, Event, MessageSent, PhaseEnded, RoundEnded
from fedhist.protocol.plan import Plan
from fedhist.server.steps import measurements_of


def length_tells(plan: Plan, round_: str) -> bool:
    """Whether an answer's length depends on what its users have: where names travel, which masking does not allow.

    Every other answer is a vector whose length and width follow from the plan and the number of users. Where names
    travel, one more item of one user makes the message longer by its name, so a size would be an exact count without
    noise.
    """
    asked = measurements_of(plan)
    return any(kind.names_travel for name, kind in asked.items() if name.value == round_)


def shared_time(seconds: float, *, truth: bool) -> float | None:
    """A time as it stands in what is shared: None unless the truth was asked for.

    Every time depends on what users have: clipping takes longer the more users are clipped, and the exponential
    mechanism draws again more or less often depending on the scores. No plan and no masking changes that.
    """
    return seconds if truth else None


def shared_times(seconds: Mapping[str, float], *, truth: bool) -> dict[str, float | None]:
    """The same of several times by name."""
    return {name: shared_time(spent, truth=truth) for name, spent in seconds.items()}


def without_data(event: Event, plan: Plan) -> Event | None:
    """The event without times and sizes that depend on data; None for one that only a simulation may tell."""
    if event.simulation_only:
        return None
    if isinstance(event, PhaseEnded | RoundEnded):
        event = replace(event, seconds=None)
    if not isinstance(event, MessageSent | RoundEnded):
        return event
    if isinstance(event, MessageSent) and event.to == TO_DEVICE:
        return event
    return replace(event, size=None) if length_tells(plan, event.round) else event
