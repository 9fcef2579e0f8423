"""The states of a device in one masked sum. Each holds what its next step needs, and no secret longer than that.

Advertised ──roster──▶ Shared ──boxes──▶ Checked ──peers, vector──▶ Masked ─────────unmask────────▶ Finished
                                                                      └─survivors─▶ Confirmed ─unmask─▲   signed mode
any ──anything that is wrong──▶ Aborted, which answers nothing

`fewest` is the device's own floor: the smallest number of participants that it accepts, whatever the terms say.
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


@dataclass(frozen=True)
class Advertised:
    """The public keys are out."""

    terms: MaskingTerms
    me: int
    box_pair: KeyPair = field(repr=False)
    mask_pair: KeyPair = field(repr=False)
    seed: bytes = field(repr=False)
    identity: Identity | None = field(repr=False, default=None)
    fewest: int = 0


@dataclass(frozen=True)
class Shared:
    """The neighbours are known, and each has a share of both secrets under way. The box secret is forgotten."""

    terms: MaskingTerms
    me: int
    parameters: GraphParameters
    mask_pair: KeyPair = field(repr=False)
    seed: bytes = field(repr=False)
    mask_keys: Mapping[int, bytes] = field(repr=False)
    receiving_keys: Mapping[int, bytes] = field(repr=False)
    roster: bytes = b""
    identity: Identity | None = field(repr=False, default=None)
    fewest: int = 0


@dataclass(frozen=True)
class Checked:
    """The boxes are opened, and the server knows which did not open. The keys of the boxes are forgotten.

    `mask_keys` and `shares` are those of the senders whose boxes opened.
    """

    terms: MaskingTerms
    me: int
    parameters: GraphParameters
    mask_pair: KeyPair = field(repr=False)
    seed: bytes = field(repr=False)
    mask_keys: Mapping[int, bytes] = field(repr=False)
    shares: Mapping[int, SharePair] = field(repr=False)
    roster: bytes = b""
    identity: Identity | None = field(repr=False, default=None)
    fewest: int = 0


@dataclass(frozen=True)
class Masked:
    """The masked vector is out. Left are shares of those it was masked with; the device's own secrets are forgotten."""

    terms: MaskingTerms
    me: int
    parameters: GraphParameters
    shares: Mapping[int, SharePair] = field(repr=False)
    roster: bytes = b""
    identity: Identity | None = field(repr=False, default=None)
    fewest: int = 0


@dataclass(frozen=True)
class Confirmed:
    """The one set of survivors that this device will ever unmask is signed."""

    masked: Masked
    survivors: tuple[int, ...] = field(repr=False)

    @property
    def terms(self) -> MaskingTerms:
        """The terms of the session."""
        return self.masked.terms

    @property
    def me(self) -> int:
        """The device's id."""
        return self.masked.me


@dataclass(frozen=True)
class Finished:
    """Nothing is left to say, and nothing secret is left."""

    terms: MaskingTerms
    me: int


@dataclass(frozen=True)
class Aborted:
    """The device gave up and forgot everything."""

    terms: MaskingTerms
    me: int
    reason: AbortReason


DeviceState = Advertised | Shared | Checked | Masked | Confirmed | Finished | Aborted
"""Where a device is in its session."""
