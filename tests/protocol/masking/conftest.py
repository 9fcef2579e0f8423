"""A masked sum that a test can stop at any stage, to see or send what it likes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pytest

from fedhist import SeededSource, SystemSource
from tests.support.api import (
    Aborted,
    AbortReason,
    CollectingAdvertisements,
    DeviceState,
    Identity,
    Integers,
    MaskedSum,
    MaskingTerms,
    Source,
    start,
)
from tests.support.api import advance_session as advance


class Play:
    """Devices 10, 13, 16, ... and a server. Each stage leaves the messages for the next one in `inbox`.

    `sent` holds all messages so far.
    """

    def __init__(
        self,
        devices: int = 5,
        *,
        signed: bool = False,
        session: int = 1,
        minimum: int = 2,
        seed: int | None = 0,
        length: int = 4,
        width: int = 32,
        fewest: int = 0,
    ) -> None:
        self.terms = MaskingTerms(
            session=bytes([session]) * 32,
            length=length,
            width=width,
            minimum_survivors=minimum,
            signed=signed,
        )
        self.fewest = fewest
        self.source: Source = SystemSource() if seed is None else SeededSource(seed)
        self.ids = [10 + 3 * number for number in range(devices)]
        secrets = {device: self.source.fork("identity", device).words(4).tobytes() for device in self.ids}
        publics = {device: Identity(secret, {}).public for device, secret in secrets.items()}
        self.identities = {device: Identity(secret, publics) for device, secret in secrets.items()}
        self.server: Any = CollectingAdvertisements(
            self.terms, source=self.source.fork("server"), directory=publics if signed else None
        )
        self.states: dict[int, DeviceState] = {}
        self.inbox: dict[int, bytes] = {}
        self.sent: list[tuple[str, int, bytes]] = []
        self.outbox: dict[int, bytes] = {}

    def vector(self, device: int) -> Integers:
        return np.arange(self.terms.length, dtype=np.int64) * device - 20

    def total(self, devices: Collection[int]) -> Integers:
        return sum((self.vector(device) for device in devices), np.zeros(self.terms.length, dtype=np.int64))

    def peek(
        self, device: int, message: bytes, state: DeviceState | None = None
    ) -> tuple[DeviceState, bytes]:
        """What a device would answer, without its having happened."""
        state = self.states[device] if state is None else state
        source = self.source.fork("device", device, type(state).__name__)
        return advance(state, message, source=source, vector=self.vector(device))

    def reason(self, message: bytes, state: DeviceState | None = None, *, me: int = 10) -> AbortReason:
        """Why a device gives up at this message: for good and without a word."""
        gone, reply = self.peek(me, message, state)
        assert isinstance(gone, Aborted) and reply == b""
        for later in (message, self.inbox[me], b""):
            assert self.peek(me, later, gone) == (gone, b"")
        return gone.reason

    def advertise(self, *, without: Collection[int] = ()) -> Play:
        for device in self.ids:
            if device not in without:
                identity = self.identities[device] if self.terms.signed else None
                source = self.source.fork("device", device)
                self.states[device], self.outbox[device] = start(
                    self.terms, device, source=source, identity=identity, fewest=self.fewest
                )
        self.deliver()
        return self

    def answer(self, *, without: Collection[int] = ()) -> Play:
        """Every device that was sent something answers, and the server closes the stage."""
        for device, message in self.inbox.items():
            if device not in without:
                self.states[device], reply = self.peek(device, message)
                if reply:
                    self.outbox[device] = reply
        self.deliver()
        return self

    def deliver(self) -> None:
        for device, message in self.outbox.items():
            self.sent.append(("device", device, message))
            self.server.add(device, message)
        self.outbox = {}
        following = self.server.close()
        if isinstance(following, MaskedSum):
            self.result, self.inbox = following, {}
        else:
            self.server, messages = following
            self.inbox = dict(messages)
        self.sent += [("server", device, message) for device, message in self.inbox.items()]

    def until(self, stage: str) -> Play:
        """Go on until the devices' inboxes hold these messages: roster, boxes, peers, survivors, unmask, or result."""
        confirming = ["survivors"] if self.terms.signed else []
        stages = ["roster", "boxes", "peers", *confirming, "unmask", "result"]
        self.advertise()
        for _ in range(stages.index(stage)):
            self.answer()
        return self


@pytest.fixture(scope="session")
def play() -> Callable[..., Play]:
    return Play
