"""`key-weights-table`: the same weights as a table whose length tells nothing. Discovers an open domain under masks.

A list of keys can't be masked; an invertible Bloom lookup table is a vector, and the sum of tables is a table of the
sum. The table has to come out exactly, or its keys can't be read: the server adds the noise, also where devices noise
the rounds after it. `protocol/plan/table_terms.py` says how long it is and what it costs that it may fail to decode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedhist.protocol.histograms import Integers, Labels
from fedhist.protocol.keyed import Keyed
from fedhist.protocol.measurements.contract import Summed, Total, Words
from fedhist.protocol.measurements.given import Salt
from fedhist.protocol.measurements.kept_items import keyed_part
from fedhist.protocol.measurements.key_weights import KeyWeights
from fedhist.protocol.plan.table_terms import table_shape
from fedhist.protocol.sketch import Decoded, TableNotDecoded, TableShape, decode_table, encode_table
from fedhist.protocol.wire.keyed_codec import with_short_names

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan


@dataclass(frozen=True, eq=False)
class KeyWeightsTable(KeyWeights[Salt]):
    """The cells of a table. Sensitivity is that of the weights in it, once it is decoded."""

    name = "key-weights-table"
    takes = Salt
    names_travel = False
    exact = True

    @classmethod
    def fits(cls, plan: Plan) -> bool:
        """An open domain that is discovered under masks."""
        return plan.discovers and plan.is_masked

    @classmethod
    def words(cls, plan: Plan) -> Words:
        """A table."""
        known = " that are not known already" if plan.known else ""
        return Words(
            asks=f"the items of users{known}, at most {plan.discovery.user_items:,} of each, as tables",
            work="weighs items, table",
            sends="a table of fixed length",
            detail=f"Each user puts equal weights on up to {plan.discovery.user_items:,} items{known}. The participant "
            f"puts names and weights into a table with room for at least {plan.max_items:,} items, whose length does "
            "not depend on them.",
        )

    @classmethod
    def charged_ahead(cls, plan: Plan) -> bool:
        """A table may fail to decode while the answers are read."""
        return True

    @property
    def table(self) -> TableShape:
        """The table of the plan."""
        return table_shape(self.plan)

    @property
    def masked_length(self) -> int:
        """The cells of the table, of which none depends on what keys there are."""
        return self.table.length

    @property
    def masked_width(self) -> int:
        """A table's cells need 64 bits, by the proof in protocol/sketch.py."""
        return 64

    def to_masked(self, summed: Summed, labels: Labels | None) -> Integers:
        """A table of these weights. Items whose names do not fit are left out."""
        keyed = with_short_names(keyed_part(summed), 1, labels, self.table.label_bytes)
        keys = keyed.keys.tolist()
        names = keys if labels is None else [labels[key] for key in keys]
        return encode_table(names, keyed.values[:, 0], self.table, salt=self.given.salt)

    def from_masked(self, vector: Integers, *, users: int, shares: int) -> Total:
        """The keys and weights in the sum of tables. One that does not decode holds none, and says so."""
        unread = False
        try:
            table = decode_table(vector, self.table, salt=self.given.salt)
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
