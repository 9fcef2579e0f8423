"""`kept-table`: the same items as a table whose length tells nothing. What open domains release under masks.

A list of keys can't be masked; an invertible Bloom lookup table is a vector, and the sum of tables is a table of the
sum. `protocol/plan/table_terms.py` says how long it is and what it costs that it may fail to decode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedhist.protocol.measurements.contract import Words
from fedhist.protocol.measurements.given import SaltedBound
from fedhist.protocol.measurements.in_table import InTable
from fedhist.protocol.measurements.kept_items import KeptItems
from fedhist.protocol.plan.table_terms import table_shape
from fedhist.protocol.sketch.iblt import TableShape

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan


@dataclass(frozen=True, eq=False)
class KeptTable(InTable, KeptItems[SaltedBound]):
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
    def table(self) -> TableShape:
        """The table of the plan at this threshold."""
        return table_shape(self.plan, self.threshold.steps)
