"""Events and their records: what is written is read back, and nothing else is read."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.api import EVENTS, DecodeError, Event, Heard, read_event
from tests.support.refusals import refused

TEXT = st.text(max_size=20)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = {
    "str": TEXT,
    "int": st.integers(),
    "float": FLOATS,
    "bool": st.booleans(),
    "None": st.none(),
    "list[str]": st.lists(TEXT, max_size=4),
    "list[float]": st.lists(FLOATS, max_size=4),
    "dict[str, Any]": st.dictionaries(TEXT, st.integers(), max_size=3),
}


@st.composite
def events(draw: Any) -> Event:
    kind = draw(st.sampled_from(sorted(EVENTS)))
    event = EVENTS[kind]
    chosen = {
        f.name: draw(st.one_of([VALUES[option] for option in str(f.type).split(" | ")]))
        for f in fields(event)
    }
    return event(**chosen)


@given(events())
def test_a_record_is_read_back_as_it_was(event: Event) -> None:
    assert read_event(json.loads(json.dumps(event.to_json()))) == event


@given(events(), st.data())
def test_a_record_without_a_field_or_with_one_more_is_refused(event: Event, data: Any) -> None:
    record = event.to_json()
    name = data.draw(st.sampled_from(sorted(set(record) - {"event"})))
    with refused(DecodeError, "wrong-fields", name):
        read_event({key: value for key, value in record.items() if key != name})
    with refused(DecodeError, "wrong-fields", "colour"):
        read_event(record | {"colour": 1})


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("phase", {"seconds": "1"}),
        ("phase", {"seconds": True}),
        ("phase", {"phase": 3}),
        ("asked", {"participants": 1.5}),
        ("charge", {"charge": []}),
        ("scores", {"candidates": [1.0, "2"]}),
        ("view", {"masked": 1}),
    ],
)
def test_a_field_of_another_type_is_refused(kind: str, change: dict[str, Any]) -> None:
    good: dict[str, dict[str, Any]] = {
        "phase": {"phase": "select", "seconds": 1.0},
        "asked": {"round": "select", "stage": "", "participants": 3, "plan": "ab"},
        "charge": {"charge": {}},
        "scores": {"candidates": [1.0], "scores": None, "base": None, "chances": None, "chosen": 1.0},
        "view": {
            "round": "select", "participant": "user 1", "places": [], "data": None, "had": [], "seen": [],
            "masked": False,
        },
    }  # fmt: skip
    read_event({"event": kind} | good[kind])
    with refused(DecodeError, "field-of-wrong-type", next(iter(change))):
        read_event({"event": kind} | good[kind] | change)


@pytest.mark.parametrize("kind", [None, 7, "murmur", Heard.kind])
def test_an_unknown_kind_is_refused(kind: object) -> None:
    with refused(DecodeError, "unknown-event"):
        read_event({"event": kind})


def test_only_scores_and_views_are_secrets() -> None:
    assert {kind for kind, event in EVENTS.items() if event.simulation_only} == {"scores", "view"}
