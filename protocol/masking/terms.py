"""What both sides of a masked sum agree on before it starts; its digest is bound into every key and message.

All but the advertisement of public keys: that is bound to the session alone, which is known before the other terms.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import astuple, dataclass
from functools import cached_property

from fedhist.protocol.errors import DecodeError, InvalidInput

SESSION_BYTES = 32
REQUEST_BYTES = 32
_LONGEST = 1 << 28
MAX_DEVICES = 1 << 24
WIDTHS = (32, 64)
_BELOW_HALF = "0 or more, and less than one half"
_TAG = b"fedhist/masking/2/terms"
_LAYOUT = struct.Struct("<32sIBddIBI32s")
TERMS_BYTES = _LAYOUT.size


@dataclass(frozen=True)
class MaskingTerms:
    """The settings of one masked sum.

    Args:
        session: new for every round; derived from the run's name, the round and the plan's digest. Devices may
            advertise keys for a session before they know the other terms.
        length: the number of values in a vector.
        width: the number of bits of a value, see `encoding.width_for`.
        corrupt_share: the part of the participants that may collude with the server. The graph allows for it.
        dropout_share: the part of the participants that may fall silent. The graph allows for it.
        minimum_survivors: a sum of fewer inputs is never unmasked.
        signed: True for the mode that withstands an active server.
        participants: the number of devices that were asked. Both shares are parts of it and not of the devices that
            advertise, because a device that colludes does not stay away. 0: all devices that were asked advertise.
        request: a digest of what is summed, where the session does not say it all.
    """

    session: bytes
    length: int
    width: int
    corrupt_share: float = 0.05
    dropout_share: float = 0.10
    minimum_survivors: int = 2
    signed: bool = False
    participants: int = 0
    request: bytes = bytes(REQUEST_BYTES)

    def __post_init__(self) -> None:
        size, named = len(self.session), len(self.request)
        low, asked = self.minimum_survivors, self.participants
        for holds, problem, allowed in (
            (size == SESSION_BYTES, f"the session has {size} bytes", f"{SESSION_BYTES} bytes"),
            (named == REQUEST_BYTES, f"the request has {named} bytes", f"{REQUEST_BYTES} bytes"),
            (1 <= self.length <= _LONGEST, f"a vector has {self.length} values", f"1 to {_LONGEST}"),
            (self.width in WIDTHS, f"a value has {self.width} bits", "32 or 64"),
            (0 <= self.corrupt_share < 0.5, f"corrupt_share is {self.corrupt_share}", _BELOW_HALF),
            (0 <= self.dropout_share < 0.5, f"dropout_share is {self.dropout_share}", _BELOW_HALF),
            (2 <= low <= MAX_DEVICES, f"minimum_survivors is {low}", f"2 to {MAX_DEVICES}"),
            (
                asked == 0 or low <= asked <= MAX_DEVICES,
                f"participants is {asked}",
                f"0, or {low} (minimum_survivors) to {MAX_DEVICES}",
            ),
        ):
            if not holds:
                raise InvalidInput(problem, allowed=allowed)

    def to_bytes(self) -> bytes:
        """The terms in a fixed layout, in the order of the fields."""
        return _LAYOUT.pack(*astuple(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> MaskingTerms:
        """The terms in these bytes. DecodeError if the bytes are not terms."""
        try:
            session, length, width, corrupt, dropout, least, signed, participants, request = _LAYOUT.unpack(
                data
            )
            if signed not in (0, 1):
                raise DecodeError("the bytes are not the terms of a masked sum")
            return cls(session, length, width, corrupt, dropout, least, bool(signed), participants, request)
        except (struct.error, InvalidInput):
            raise DecodeError("the bytes are not the terms of a masked sum") from None

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of all settings."""
        return hashlib.sha256(_TAG + self.to_bytes()).digest()
