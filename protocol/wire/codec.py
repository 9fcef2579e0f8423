"""Contributions as bytes: a fixed header, then the values, and nothing after them.

    magic "FH" · version u8 · round u8 · plan digest 32 bytes · users u32 · width u8 · length u32 · values · keyed part

The keyed part is there over an open domain only, see `protocol/wire/keyed_codec.py`.
All little-endian; values are signed and 4 or 8 bytes wide. The width is the smallest that holds the largest value the
plan admits for so many users, so it tells nothing of the data.
"""

from __future__ import annotations

import math
import struct

import numpy as np

from fedhist.protocol.errors import DecodeError, OutOfBounds, UnexpectedMessage
from fedhist.protocol.histograms import MAX_USER_TOTAL, Integers
from fedhist.protocol.measurements.noisy_tail import tail_measurement
from fedhist.protocol.measurements.open_statistics import SHARE_BITS
from fedhist.protocol.plan.checks import MAX_USERS
from fedhist.protocol.rounds import Contribution, Labels, Request, Round, SelectRequest
from fedhist.protocol.wire.keyed_codec import decode_keyed, encode_keyed

VERSION = 1
_ROOM_FOR_SELECTORS = 1 << 56
# The discrete Gaussian's variance is 9 above the continuous one's, and sqrt(s^2 + 9) <= s + 3.
_GRID_SPREAD = 3
_HEADER = struct.Struct("<2sBB32sIBI")
_MAGIC = b"FH"
_ROUND_CODES = {Round.SELECT: 1, Round.RELEASE: 2}
_ROUNDS = {code: round_ for round_, code in _ROUND_CODES.items()}


def largest_value(request: Request) -> int:
    """The largest value that one user can add anywhere in an answer to this request, noise aside."""
    plan = request.plan
    if not isinstance(request, SelectRequest):
        return request.threshold.steps
    if plan.noise_by_devices:
        measurement = tail_measurement(plan)
        return measurement.largest * int(measurement.coefficients[0])
    if plan.per_item:
        return 1
    if plan.is_open:
        most = int(plan.candidate_steps[-1])
        return most << SHARE_BITS if plan.statistic == "bucketed" else max(most, 1 << SHARE_BITS)
    return plan.tail_cap


def largest_noise(request: Request) -> int:
    """What noise exceeds nowhere in the sum, either way, but with probability 2^-40. Beyond it a value is wrong.

    The shares of all participants together, or what the server adds before it reads the sum. In round 1 some selectors
    add noise of their own, for which there is room up to the widest sums. Where keys travel none is added to a vector.
    """
    plan, share = request.plan, request.noise_share
    if share is not None:
        return share.reach(request.length, plan.participants or 0)
    if plan.is_open or (plan.per_item and isinstance(request, SelectRequest)):
        return 0
    if isinstance(request, SelectRequest):
        return _ROOM_FOR_SELECTORS
    spread = plan.unit_noise * request.threshold.steps + _GRID_SPREAD
    tail = math.log(2 * request.length) + 40 * math.log(2)
    return math.ceil(spread * (math.sqrt(2 * tail) if plan.mechanism == "gaussian" else tail))


def value_width(request: Request, users: int) -> int:
    """4 bytes when every value that `users` users can add up to fits in them, else 8."""
    return 4 if largest_value(request) * users <= MAX_USER_TOTAL else 8


def encode(contribution: Contribution, request: Request, labels: Labels | None = None) -> bytes:
    """The bytes of a contribution that answers the request; `labels` name its item numbers, None by themselves."""
    columns = 0 if contribution.keyed is None else contribution.keyed.values.shape[1]
    form = (contribution.round, len(contribution.values), columns)
    if form != (request.round, request.length, request.keyed_columns):
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
    return dense + encode_keyed(contribution.keyed, bins_per_item(request), labels)


def decode(data: bytes, request: Request) -> tuple[Contribution, Labels | None]:
    """The contribution in these bytes, refused unless it answers this very request, and its items' labels."""
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
    end = _HEADER.size + width * length
    if len(data) < end or (len(data) != end and not request.keyed_columns):
        raise DecodeError(f"{len(data)} bytes where {end} are due")
    values = np.frombuffer(data[:end], dtype=f"<i{width}", offset=_HEADER.size).astype(np.int64)
    keyed, labels = None, None
    if request.keyed_columns:
        keyed, labels = decode_keyed(data[end:], request.keyed_columns, bins_per_item(request))
        _check_bounds(keyed.values, largest_value(request) * users)
    _check_bounds(values, largest_value(request) * users)
    contribution = Contribution(
        round=request.round, plan_digest=digest, users=users, values=values, keyed=keyed
    )
    return contribution, labels


def _check_bounds(values: Integers, largest: int) -> None:
    if len(values) and (int(values.min()) < 0 or int(values.max()) > largest):
        raise OutOfBounds(f"a value outside 0 to {largest}, the most that so many users can add up to")


def bins_per_item(request: Request) -> int:
    """How many keys each item has: its bins in round 1, one in round 2."""
    return len(request.plan.candidate_steps) + 1 if isinstance(request, SelectRequest) else 1
