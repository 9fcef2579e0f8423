"""The bytes of every message: known transcripts, and bad messages that must be refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedhist import InvalidInput
from tests.support.api import TERMS_BYTES, DecodeError, MaskingTerms
from tests.support.api import MaskingKind as Kind
from tests.support.api import wire_module as wire
from tests.support.refusals import refused

VECTORS = Path(__file__).resolve().parents[2] / "vectors" / "masking"
DECODERS: dict[Kind, Callable[[bytes, MaskingTerms], object]] = {
    Kind.ADVERTISEMENT: lambda data, terms: wire.read_advertisement(
        wire.body_of(data, Kind.ADVERTISEMENT, terms), terms
    ),
    Kind.ROSTER: wire.decode_roster,
    Kind.SHARES: lambda data, terms: wire.decode_boxes(data, Kind.SHARES, terms),
    Kind.BOXES: lambda data, terms: wire.decode_boxes(data, Kind.BOXES, terms),
    Kind.COMPLAINTS: lambda data, terms: wire.decode_ids(data, Kind.COMPLAINTS, terms),
    Kind.PEERS: lambda data, terms: wire.decode_ids(data, Kind.PEERS, terms),
    Kind.MASKED: wire.masked_body,
    Kind.SURVIVORS: lambda data, terms: wire.decode_ids(data, Kind.SURVIVORS, terms),
    Kind.CONFIRMATION: wire.decode_confirmation,
    Kind.UNMASK: wire.decode_unmask,
    Kind.OPENING: wire.decode_opening,
}


def read(name: str) -> Any:
    return json.loads((VECTORS / name).read_text(encoding="utf-8"))


def transcript(play: Any, *, signed: bool) -> dict[str, Any]:
    """All messages of a small seeded session, in their order; device 16 falls silent before it masks."""
    cohort = play(6, signed=signed, seed=2024, length=3)
    cohort.advertise().answer().answer()
    cohort.answer(without=[16])
    while cohort.inbox:
        cohort.answer()
    return {
        "terms": cohort.terms.to_bytes().hex(),
        "messages": [[side, device, Kind(data[3]).name, data.hex()] for side, device, data in cohort.sent],
        "included": list(cohort.result.included),
        "sum": cohort.result.values.tolist(),
    }


@pytest.mark.parametrize("mode", ["plain", "signed"])
def test_a_seeded_session_sends_the_known_bytes(play: Any, mode: str) -> None:
    known = read(f"transcript-{mode}.json")
    assert transcript(play, signed=mode == "signed") == known
    kinds = {kind for _, _, kind, _ in known["messages"]}
    assert len(kinds) == (11 if mode == "signed" else 9)


@pytest.mark.parametrize(
    "case", read("bad-messages.json"), ids=lambda case: f"{case['kind']}-{case['fault']}"
)
def test_a_bad_message_is_refused(case: dict[str, str]) -> None:
    terms = MaskingTerms.from_bytes(bytes.fromhex(case["terms"]))
    with refused(DecodeError, case["error"]):
        DECODERS[Kind[case["kind"]]](bytes.fromhex(case["data"]), terms)


class TestTerms:
    def test_bytes_and_back(self) -> None:
        terms = MaskingTerms(b"x" * 32, 7, 64, 0.01, 0.2, 9, True, request=b"y" * 32)
        assert MaskingTerms.from_bytes(terms.to_bytes()) == terms

    def test_every_setting_is_in_the_digest(self) -> None:
        base = {"session": bytes(32), "length": 7, "width": 32}
        changes: list[dict[str, Any]] = [
            {},
            {"session": b"x" * 32},
            {"length": 8},
            {"width": 64},
            {"corrupt_share": 0.06},
            {"dropout_share": 0.11},
            {"minimum_survivors": 3},
            {"signed": True},
            {"participants": 9},
            {"request": b"x" * 32},
        ]
        assert len({MaskingTerms(**(base | change)).digest for change in changes}) == len(changes)

    @pytest.mark.parametrize(
        "change",
        [
            {"session": bytes(31)},
            {"length": 0},
            {"width": 16},
            {"corrupt_share": 0.5},
            {"dropout_share": -0.1},
            {"dropout_share": float("nan")},
            {"minimum_survivors": 1},
            {"participants": 1},
            {"request": b""},
        ],
        ids=str,
    )
    def test_impossible_ones(self, change: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput):
            MaskingTerms(**({"session": bytes(32), "length": 7, "width": 32} | change))

    @pytest.mark.parametrize("data", [b"", bytes(TERMS_BYTES), bytes(62), b"x" * 95], ids=len)
    def test_bytes_that_are_none(self, data: bytes) -> None:
        with pytest.raises(DecodeError):
            MaskingTerms.from_bytes(data)
