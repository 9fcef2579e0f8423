"""How sums by key travel under masks: as a table whose length tells nothing, and whose sum can be read back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhist.protocol.histograms import Integers, Labels
from fedhist.protocol.keyed import Keyed
from fedhist.protocol.measurements.contract import Summed, Total
from fedhist.protocol.measurements.kept_items import keyed_part
from fedhist.protocol.sketch.iblt import Decoded, TableNotDecoded, TableShape, decode_table, encode_table
from fedhist.protocol.wire.keyed_codec import with_short_names

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan


class InTable(ABC):
    """The cells of a table. Sensitivity is that of the sums in it, once it is decoded."""

    given: Any

    @classmethod
    def charged_ahead(cls, plan: Plan) -> bool:
        """A table may fail to decode while the answers are read."""
        return True

    @property
    @abstractmethod
    def table(self) -> TableShape:
        """The table of the plan."""

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
