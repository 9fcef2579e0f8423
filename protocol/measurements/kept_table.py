"""`kept-table`: the same items as a table whose length tells nothing. What open domains release under masks.

A list of keys can't be masked; an invertible Bloom lookup table is a vector, and the sum of tables is a table of the
sum. `protocol/plan/table_terms.py` says how long it is and what it costs that it may fail to decode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedhist.protocol.histograms import Integers, Labels
from fedhist.protocol.keyed import Keyed
from fedhist.protocol.measurements.contract import Summed, Total, Words
from fedhist.protocol.measurements.given import SaltedBound
from fedhist.protocol.measurements.kept_items import KeptItems, keyed_part
from fedhist.protocol.plan.table_terms import table_shape
from fedhist.protocol.sketch.iblt import Decoded, TableNotDecoded, TableShape, decode_table, encode_table
from fedhist.protocol.wire.keyed_codec import with_short_names

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan


@dataclass(frozen=True, eq=False)
class KeptTable(KeptItems[SaltedBound]):
    """The cells of a table. Sensitivity is that of the items in it, once it is decoded."""

    name = "kept-table"
    takes = SaltedBound
    names_travel = False

    @classmethod
    def fits(cls, plan: Plan) -> bool:
        """An open domain under masks."""
        return plan.release in cls.releases and plan.has_table

    @classmethod
    def words(cls, plan: Plan) -> Words:
        """A table."""
        return Words(
            asks="histograms of at most C items of each user, drawn at random, as tables",
            work="draws C items, table",
            sends="a table of fixed length",
            detail="Each user keeps at most C items, drawn at random. The participant puts their names and counts into "
            f"a table with room for at least {plan.table_capacity:,} items, whose length does not depend on them.",
            clip="random clip",
            bound="Every user contributes at most C = {C} counts, drawn at random.",
        )

    @property
    def masked_length(self) -> int:
        """The cells of the table, of which none depends on what keys there are."""
        return self.table.length

    @property
    def masked_width(self) -> int:
        """A table's cells need 64 bits, by the proof in protocol/sketch/iblt.py."""
        return 64

    def to_masked(self, summed: Summed, labels: Labels | None) -> Integers:
        """The table. Items whose names do not fit are left out."""
        return written_table(keyed_part(summed), labels, self.table, salt=self.given.salt)

    def from_masked(self, vector: Integers, *, users: int, shares: int) -> Total:
        """The keys and counts in the sum of tables. One that does not decode holds none, and says so."""
        return read_table(vector, self.table, salt=self.given.salt, users=users, shares=shares)

    @property
    def table(self) -> TableShape:
        """The table of the plan at this threshold."""
        return table_shape(self.plan, self.threshold.steps)


def written_table(keyed: Keyed, labels: Labels | None, shape: TableShape, *, salt: bytes) -> Integers:
    """A table of these sums. Items whose names do not fit are left out."""
    keyed = with_short_names(keyed, 1, labels, shape.label_bytes)
    keys = keyed.keys.tolist()
    names = keys if labels is None else [labels[key] for key in keys]
    return encode_table(names, keyed.values[:, 0], shape, salt=salt)


def read_table(vector: Integers, shape: TableShape, *, salt: bytes, users: int, shares: int) -> Total:
    """The keys and sums in a sum of tables. One that does not decode holds none, and says so."""
    unread = False
    try:
        table = decode_table(vector, shape, salt=salt)
    except TableNotDecoded:
        table, unread = Decoded(labels=[], counts=vector[:0]), True
    return Total(
        users=users,
        values=vector[:0],
        keyed=Keyed(keys=np.arange(len(table.counts)), values=table.counts[:, np.newaxis]),
        labels=table.labels,
        shares=shares,
        unread=unread,
    )
