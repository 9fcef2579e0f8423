"""Contributions as bytes: a fixed header, then the values, and nothing after them.

    magic "FH" · version u8 · round u8 · plan digest 32 bytes · users u32 · width u8 · length u32 · values

All little-endian; values are signed and 4 or 8 bytes wide. The width is the smallest that holds the largest value the
plan admits for so many users, so it tells nothing of the data.
"""

from __future__ import annotations

import struct

import numpy as np

from fedhist.protocol.errors import DecodeError, UnexpectedMessage
from fedhist.protocol.histograms import MAX_USER_TOTAL
from fedhist.protocol.plan import MAX_USERS
from fedhist.protocol.rounds import Contribution, Request, Round, SelectRequest

VERSION = 1
_HEADER = struct.Struct("<2sBB32sIBI")
_MAGIC = b"FH"
_ROUND_CODES = {Round.SELECT: 1, Round.RELEASE: 2}
_ROUNDS = {code: round_ for round_, code in _ROUND_CODES.items()}


def value_width(request: Request, users: int) -> int:
    """4 bytes when every value that `users` users can add up to fits in them, else 8."""
    per_user = request.plan.tail_cap if isinstance(request, SelectRequest) else request.threshold.steps
    return 4 if per_user * users <= MAX_USER_TOTAL else 8


def encode(contribution: Contribution, request: Request) -> bytes:
    """The bytes of a contribution that answers the request."""
    if contribution.round is not request.round or len(contribution.values) != request.length:
        raise UnexpectedMessage(state=request, message=contribution)
    width = value_width(request, contribution.users)
    header = _HEADER.pack(
        _MAGIC,
        VERSION,
        _ROUND_CODES[contribution.round],
        contribution.plan_digest,
        contribution.users,
        width,
        len(contribution.values),
    )
    return header + contribution.values.astype(f"<i{width}").tobytes()


def decode(data: bytes, request: Request) -> Contribution:
    """The contribution in these bytes, refused unless it answers this very request."""
    if len(data) < _HEADER.size:
        raise DecodeError(f"a contribution has at least {_HEADER.size} bytes, this one {len(data)}")
    magic, version, round_code, digest, users, width, length = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise DecodeError("these bytes are not a contribution")
    if version != VERSION:
        raise DecodeError(f"contribution of version {version}; this side speaks version {VERSION}")
    if _ROUNDS.get(round_code) is not request.round:
        raise DecodeError(f"contribution of another round (code {round_code}) than {request.round}")
    if digest != request.plan.digest:
        raise DecodeError("contribution for another plan")
    if not 1 <= users <= MAX_USERS:
        raise DecodeError(f"contribution of {users} users; allowed: 1 to {MAX_USERS}")
    if width != value_width(request, users):
        raise DecodeError(f"values of {width} bytes where {value_width(request, users)} are due")
    if length != request.length:
        raise DecodeError(f"{length} values where {request.length} are due")
    if len(data) != _HEADER.size + width * length:
        raise DecodeError(f"{len(data)} bytes where {_HEADER.size + width * length} are due")
    values = np.frombuffer(data, dtype=f"<i{width}", offset=_HEADER.size).astype(np.int64)
    return Contribution(round=request.round, plan_digest=digest, users=users, values=values)
