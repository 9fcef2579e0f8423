"""A cohort that masks: the same messages on any number of cores, one agreement a pair, few vectors at a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest

from fedhist import SeededSource, SystemSource
from tests.support.api import (
    AgreedOnce,
    Integers,
    KeyPair,
    LocalDevices,
    MaskedSum,
    MaskingTerms,
    masked_sum,
    run_cohort,
)
from tests.support.api import masked_module as masked_cohort

LENGTH = 5
DROPOUTS = {"advertising": [3], "sharing": [10, 11], "checking": [12], "masking": [20, 21], "unmasking": [30]}


def terms(length: int = LENGTH) -> MaskingTerms:
    return MaskingTerms(session=bytes(32), length=length, width=32)


def vector_of(device: int) -> Integers:
    return np.arange(LENGTH, dtype=np.int64) * device - 7


Sent = list[tuple[Any, ...]]


def everything(
    devices: int, dropouts: Mapping[str, Collection[int]], cores: int, **options: Any
) -> tuple[MaskedSum, Sent]:
    """A sum, and every message on the way."""
    sent: Sent = []
    run = run_cohort(
        terms(),
        devices,
        vector_of,
        source=SeededSource(4),
        dropouts=dropouts,
        cores=cores,
        watch=lambda *message: sent.append(message),
        **options,
    )
    return run, sorted(sent)


def by_devices_alone(devices: int, dropouts: Mapping[str, Collection[int]]) -> tuple[MaskedSum, Sent]:
    """The same by devices that compute every agreement for themselves."""
    source, sent = SeededSource(4).fork("masking", bytes(32).hex()), list[tuple[Any, ...]]()
    cohort = LocalDevices(
        terms(),
        range(devices),
        vector_of,
        source_of=lambda device, stage: source.fork("device", device, stage),
        silent=dropouts,
    )

    def exchange(stage: str, messages: Any) -> Any:
        asked = None if messages is None else list(messages)
        sent.extend((stage, "to-device", *message) for message in asked or ())
        answers = list(cohort(stage, asked))
        sent.extend((stage, "to-server", *message) for message in answers)
        return answers

    return masked_sum(terms(), exchange, source=source.fork("server")), sorted(sent)


@pytest.mark.parametrize("cores", [1, 2, 3])
@pytest.mark.parametrize("devices", [40, 112])
def test_who_agrees_for_whom_and_where_changes_no_message(devices: int, cores: int) -> None:
    alone, expected = by_devices_alone(devices, DROPOUTS)
    run, sent = everything(devices, DROPOUTS, cores)
    assert [message[2:] for message in sent] == [message[2:] for message in expected]
    assert run.included == alone.included
    assert np.array_equal(run.values, sum(vector_of(device) for device in run.included))
    absent = {device for stage, gone in DROPOUTS.items() if stage != "unmasking" for device in gone}
    assert set(run.included) == set(range(devices)) - absent


@pytest.mark.parametrize("cores", [1, 2])
def test_noise_is_added_where_the_device_is(cores: int) -> None:
    run, _ = everything(40, {}, cores, noised=lambda device, vector: vector + device)
    assert np.array_equal(run.values, sum(vector_of(device) + device for device in range(40)))


def test_the_system_s_own_randomness_serves_as_well() -> None:
    run = run_cohort(terms(), 40, vector_of, source=SystemSource(), cores=2)
    assert np.array_equal(run.values, sum(vector_of(device) for device in range(40)))


@pytest.mark.parametrize("cores", [1, 2])
def test_vectors_are_made_in_order_and_few_at_a_time(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masked_cohort, "_VECTOR_BYTES", 1)
    made: WeakSet[Any] = WeakSet()
    asked, most = list[int](), 0

    class Vector(np.ndarray[Any, Any]):
        """Hashed by what it is, not by what it holds."""

        __hash__ = object.__hash__  # type: ignore[assignment]  # an array has none

    def followed(device: int) -> Integers:
        nonlocal most
        vector = vector_of(device).view(Vector)
        made.add(vector)
        asked.append(device)
        most = max(most, len(made))
        return vector

    run = run_cohort(
        terms(), 200, followed, source=SeededSource(1), cores=cores, dropouts={"masking": range(5, 10)}
    )
    assert tuple(asked) == run.included
    assert asked == sorted(asked)
    assert most <= (2 if cores == 1 else 2 * 8 + 2)


class TestAgreedOnce:
    ONE, OTHER = (KeyPair.from_secret(bytes([number]) * 32) for number in (1, 2))

    def derived(self, agreed: AgreedOnce, pair: KeyPair, me: int, peer: int, public: bytes) -> bytes:
        (found,) = agreed(pair, b"box", bytes(32), me, [(peer, public)], 64)
        return found

    def test_the_second_side_gets_what_it_would_have_computed_and_then_nothing_is_kept(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        agreed = AgreedOnce()
        first = self.derived(agreed, self.ONE, 5, 9, self.OTHER.public)
        (expected,) = self.OTHER.derive_for(b"box", bytes(32), 9, [(5, self.ONE.public)], 64)
        assert any(agreed._kept.values())
        monkeypatch.setattr(KeyPair, "derive_for", lambda *_: iter(()))
        assert self.derived(agreed, self.OTHER, 9, 5, self.ONE.public) == first == expected
        assert not any(agreed._kept.values())

    def test_a_side_that_was_told_another_key_gets_another_one(self) -> None:
        """As on two devices between which a server stands."""
        agreed, servers = AgreedOnce(), KeyPair.from_secret(bytes([3]) * 32)
        first = self.derived(agreed, self.ONE, 5, 9, servers.public)
        second = self.derived(agreed, self.OTHER, 9, 5, servers.public)
        (expected,) = self.OTHER.derive_for(b"box", bytes(32), 9, [(5, servers.public)], 64)
        assert first != second == expected

    def test_order_is_kept_when_some_are_known(self) -> None:
        agreed = AgreedOnce()
        pairs = [KeyPair.from_secret(bytes([number]) * 32) for number in range(1, 7)]
        for peer in (2, 4):
            self.derived(agreed, pairs[peer], peer, 0, pairs[0].public)
        peers = [(peer, pairs[peer].public) for peer in range(1, 6)]
        found = list(agreed(pairs[0], b"box", bytes(32), 0, peers, 64))
        assert found == list(pairs[0].derive_for(b"box", bytes(32), 0, peers, 64))
