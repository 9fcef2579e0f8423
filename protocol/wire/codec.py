"""Contributions as bytes: a fixed header, then the values, and nothing after them.

    magic "FH" · version u8 · round u8 · plan digest 32 bytes · users u32 · width u8 · length u32 · values · keyed part

The keyed part is there over an open domain only, see `protocol/wire/keyed_codec.py`.
All little-endian; values are signed and 4 or 8 bytes wide. The width is the smallest that holds the largest value the
plan admits for the number of users, so it tells nothing of the data.
"""

from __future__ import annotations

import struct

import numpy as np

from fedhist.protocol.errors import DecodeError, OutOfBounds, UnexpectedMessage
from fedhist.protocol.histograms import MAX_USER_TOTAL, Integers
from fedhist.protocol.plan.rules import MAX_USERS
from fedhist.protocol.rounds import Contribution, Labels, Request, Round
from fedhist.protocol.wire.keyed_codec import decode_keyed, encode_keyed

VERSION = 1
_HEADER = struct.Struct("<2sBB32sIBI")
_MAGIC = b"FH"
_ROUND_CODES = {Round.SELECT: 1, Round.RELEASE: 2, Round.DISCOVER: 3}
_ROUNDS = {code: round_ for round_, code in _ROUND_CODES.items()}


def value_width(request: Request, users: int) -> int:
    """4 bytes when every value that `users` users can add up to fits in them, else 8."""
    return 4 if request.measurement.shape.largest * users <= MAX_USER_TOTAL else 8


def encode(contribution: Contribution, request: Request, labels: Labels | None = None) -> bytes:
    """The bytes of a contribution that answers the request; `labels` name its item numbers, None by themselves."""
    shape = request.measurement.shape
    columns = 0 if contribution.keyed is None else contribution.keyed.values.shape[1]
    if (contribution.round, len(contribution.values), columns) != (
        request.round,
        shape.length,
        shape.columns,
    ):
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
    dense = header + contribution.values.astype(f"<i{width}").tobytes()
    if contribution.keyed is None:
        return dense
    return dense + encode_keyed(contribution.keyed, shape.bins, labels)


def decode(data: bytes, request: Request) -> tuple[Contribution, Labels | None]:
    """The contribution in these bytes, refused unless it answers this very request, and its items' labels."""
    shape = request.measurement.shape
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
    if length != shape.length:
        raise DecodeError(f"{length} values where {shape.length} are due")
    end = _HEADER.size + width * length
    if len(data) < end or (len(data) != end and not shape.columns):
        raise DecodeError(f"{len(data)} bytes where {end} are due")
    values = np.frombuffer(data[:end], dtype=f"<i{width}", offset=_HEADER.size).astype(np.int64)
    keyed, labels = None, None
    if shape.columns:
        keyed, labels = decode_keyed(data[end:], shape.columns, shape.bins)
        _check_bounds(keyed.values, shape.largest * users)
    _check_bounds(values, shape.largest * users)
    contribution = Contribution(
        round=request.round, plan_digest=digest, users=users, values=values, keyed=keyed
    )
    return contribution, labels


def _check_bounds(values: Integers, largest: int) -> None:
    if len(values) and (int(values.min()) < 0 or int(values.max()) > largest):
        raise OutOfBounds(f"a value outside 0 to {largest}, the most that its users can add up to")
