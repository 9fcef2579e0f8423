"""The states of a device in one masked sum. Each holds what its next step needs, and no secret longer than that.

Advertised ──roster──▶ Shared ──boxes──▶ Checked ──peers, vector──▶ Masked ─────────unmask────────▶ Finished
                                                                      └─survivors─▶ Confirmed ─unmask─▲   signed mode
any ──anything that is wrong──▶ Aborted, which answers nothing
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fedhist.protocol.masking.boxes import SharePair
from fedhist.protocol.masking.graph import GraphParameters
from fedhist.protocol.masking.keys import Identity, KeyPair
from fedhist.protocol.masking.terms import MaskingTerms


class AbortReason(StrEnum):
    """Why a device gave up; the whole vocabulary, so that no reason can carry data."""

    MALFORMED = "malformed"
    UNEXPECTED = "unexpected"
    UNSAFE_GRAPH = "unsafe-graph"
    WRONG_NEIGHBOURS = "wrong-neighbours"
    BAD_KEY = "bad-key"
    REPEATED_KEY = "repeated-key"
    BAD_SIGNATURE = "bad-signature"
    STRANGER = "stranger"
    TOO_FEW = "too-few"
    WRONG_SURVIVORS = "wrong-survivors"


@dataclass(frozen=True, kw_only=True)
class _Session:
    terms: MaskingTerms
    me: int


@dataclass(frozen=True, kw_only=True)
class _Member(_Session):
    """`fewest` is the device's own floor: the fewest participants that it accepts, whatever the terms say."""

    identity: Identity | None = field(repr=False, default=None)
    fewest: int = 0


@dataclass(frozen=True, kw_only=True)
class Advertised(_Member):
    """The public keys are out."""

    box_pair: KeyPair = field(repr=False)
    mask_pair: KeyPair = field(repr=False)
    seed: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Shared(_Member):
    """The neighbours are known, and each has a share of both secrets under way. The box secret is forgotten."""

    parameters: GraphParameters
    mask_pair: KeyPair = field(repr=False)
    seed: bytes = field(repr=False)
    mask_keys: Mapping[int, bytes] = field(repr=False)
    receiving_keys: Mapping[int, bytes] = field(repr=False)
    roster: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Checked(_Member):
    """The boxes are opened, and the server knows which did not open. The keys of the boxes are forgotten.

    `mask_keys` and `shares` are those of the senders whose boxes opened.
    """

    parameters: GraphParameters
    mask_pair: KeyPair = field(repr=False)
    seed: bytes = field(repr=False)
    mask_keys: Mapping[int, bytes] = field(repr=False)
    shares: Mapping[int, SharePair] = field(repr=False)
    roster: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Masked(_Member):
    """The masked vector is out. Left are shares of those it was masked with; the device's own secrets are forgotten."""

    parameters: GraphParameters
    shares: Mapping[int, SharePair] = field(repr=False)
    roster: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Confirmed(Masked):
    """The one set of survivors that this device will ever unmask is signed."""

    survivors: tuple[int, ...] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Finished(_Session):
    """Nothing is left to say, and nothing secret is left."""


@dataclass(frozen=True, kw_only=True)
class Aborted(_Session):
    """The device gave up and forgot everything."""

    reason: AbortReason


DeviceState = Advertised | Shared | Checked | Masked | Confirmed | Finished | Aborted
"""Where a device is in its session."""
