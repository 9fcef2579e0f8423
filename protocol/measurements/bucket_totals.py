"""`bucket-totals`: expected counts by bucket, one vector whatever the items are. Round 1 of open domains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from fedhist.protocol.circle import size
from fedhist.protocol.clips.clipping import entry_counts, entry_items
from fedhist.protocol.errors import UnexpectedMessage
from fedhist.protocol.histograms import Histograms, Integers, Labels
from fedhist.protocol.measurements.contract import Measurement, Round, Shape, Summed, Total, Words
from fedhist.protocol.measurements.expected_counts import (
    SHARE_BITS,
    BucketedCounts,
    OpenTail,
    binned,
    expected,
    read_header,
)
from fedhist.protocol.measurements.given import Nothing
from fedhist.protocol.measurements.key_totals import open_sensitivities
from fedhist.protocol.measurements.limits import at_most, sum_at_most
from fedhist.protocol.privacy.neighbours import Sensitivity
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.sketch.buckets import bucket_numbers

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan


# This number of buckets, and what is computed of them, stay in a core's cache.
_CACHED_ROWS = 128


@dataclass(frozen=True, eq=False)
class BucketTotals(Measurement[Nothing]):
    """For each candidate the users above, the overflow, and a value a bucket.

    Hashing items into buckets adds up their A_j(C), which is linear, so sensitivities are those of single items.

    Args:
        bucket_of: the bucket of each of a participant's item numbers.
    """

    name = "bucket-totals"
    round = Round.SELECT
    offers = frozenset({"expected-counts"})
    where = "over open domains"

    bucket_of: Integers | None = field(default=None, repr=False)

    @classmethod
    def fits(cls, plan: Plan) -> bool:
        """An open domain, with masks or without."""
        return plan.is_open and not plan.discovers and plan.statistic == "bucketed"

    @classmethod
    def words(cls, plan: Plan) -> Words:
        """Sums by bucket."""
        candidates, buckets = len(plan.candidate_steps), plan.buckets
        return Words(
            asks=f"expected counts at {candidates:,} candidate thresholds, hashed into {buckets:,} buckets",
            work="items into buckets",
            sends=f"{candidates * (buckets + 2):,} whole numbers",
            detail=f"Items are hashed into {buckets:,} buckets. The device sends what it expects to keep of each "
            "bucket at each candidate.",
        )

    @cached_property
    def shape(self) -> Shape:
        """Expected counts are in multiples of 2^-SHARE_BITS."""
        candidates = self.plan.candidate_steps
        return Shape(
            length=len(candidates) * (self.plan.buckets + 2), largest=int(candidates[-1]) << SHARE_BITS
        )

    @property
    def sensitivities(self) -> Mapping[str, Sensitivity]:
        """Of what selectors read."""
        return open_sensitivities(self.plan)

    def with_labels(self, labels: Labels) -> Self:
        """With each item's bucket, salted with the plan's public name."""
        return replace(self, bucket_of=bucket_numbers(labels, self.plan.buckets, salt=self.plan.digest))

    def of(self, users: Histograms, *, source: Source) -> Summed:
        """Expected counts of the buckets as if they were the items."""
        if self.bucket_of is None:
            raise UnexpectedMessage(state="bucket-totals without the items' labels", message=users)
        candidates, buckets = self.plan.candidate_steps, self.plan.buckets
        hashed = Histograms(
            offsets=users.offsets - users.offsets[0],
            items=self.bucket_of[entry_items(users)],
            counts=entry_counts(users),
            domain_size=buckets,
            first_user=users.first_user,
        )
        entries, bins = binned(hashed, candidates, int(candidates[-1])), len(candidates) + 1
        values = np.zeros(self.shape.length, dtype=np.int64)
        values[: 2 * len(candidates)] = np.concatenate(read_header(entries.header, candidates))
        table = values[2 * len(candidates) :].reshape(buckets, len(candidates))
        # One device has few buckets, and a batch of users nearly all.
        present = np.flatnonzero(np.bincount(entries.items, minlength=buckets))
        row_of = np.zeros(buckets, dtype=np.int64)
        row_of[present] = np.arange(len(present)) * bins
        cells = row_of[entries.items] + entries.bins
        mass, share = (
            # Exact in doubles: a plan keeps all sums below 2^53.
            np.bincount(cells, weights=of_entries, minlength=len(present) * bins).reshape(-1, bins)
            for of_entries in (entries.mass, entries.share)
        )
        for start in range(0, len(present), _CACHED_ROWS):
            rows = slice(start, start + _CACHED_ROWS)
            whole = mass[rows].astype(np.int64), share[rows].astype(np.int64)
            table[present[rows]] = expected(*whole, candidates)
        return Summed(values)

    def check(self, summed: Summed, users: int) -> None:
        """The users' totals are cut to C_m, and so are their expected counts together."""
        candidates = self.plan.candidate_steps
        above, overflow, table = np.split(summed.values, [len(candidates), 2 * len(candidates)])
        at_most(above, users, "users above a candidate")
        at_most(overflow, users * int(candidates[-1]), "the overflow of a candidate")
        bounds = users * candidates << SHARE_BITS
        sum_at_most(table.reshape(-1, len(candidates)), bounds, "the expected counts of a candidate")

    def read(self, total: Total) -> OpenTail:
        """Expected counts of every bucket.

        Under masks the sum is known modulo 2^width only, so every value is read as its distance to 0 on the circle,
        cut to what these users can add up to: of honest sums that is the value itself, and of any others it still
        moves by no more than a user moves the sum.
        """
        candidates, users = self.plan.candidate_steps, total.users
        count, mass = len(candidates), users * int(candidates[-1])
        above, overflow, table = np.split(total.values, [count, 2 * count])
        return OpenTail(
            users_above=size(above, users, total.width),
            overflow=size(overflow, mass, total.width),  # audited: overflow
            expected=BucketedCounts(table=size(table, mass << SHARE_BITS, total.width).reshape(-1, count)),
            users=users,
        )

    def shown(self, summed: Summed, labels: Labels, most: int) -> list[tuple[str, float]]:
        """The candidates below the device's total, then its buckets."""
        count = len(self.plan.candidate_steps)
        places = np.flatnonzero(summed.values)[:most].tolist()
        return [
            (_place(place, count), _unscaled(place, count, int(summed.values[place]))) for place in places
        ]


def _place(place: int, count: int) -> str:
    if place < count:
        return f"users above candidate {place}"
    if place < 2 * count:
        return f"overflow of candidate {place - count}"
    bucket, candidate = divmod(place - 2 * count, count)
    return f"bucket {bucket} at candidate {candidate}"


def _unscaled(place: int, count: int, value: int) -> float:
    return float(value) if place < 2 * count else value / 2**SHARE_BITS
