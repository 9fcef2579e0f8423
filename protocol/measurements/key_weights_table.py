"""`key-weights-table`: the same weights as a table whose length tells nothing. Discovers an open domain under masks.

The table has to come out exactly, or its keys can't be read: the server adds the noise, also where devices noise the
rounds after it. `protocol/plan/table_terms.py` says how long it is and what it costs that it may fail to decode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedhist.protocol.measurements.contract import Words
from fedhist.protocol.measurements.given import Salt
from fedhist.protocol.measurements.in_table import InTable
from fedhist.protocol.measurements.key_weights import KeyWeights
from fedhist.protocol.plan.table_terms import table_shape
from fedhist.protocol.sketch.iblt import TableShape

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan


@dataclass(frozen=True, eq=False)
class KeyWeightsTable(InTable, KeyWeights[Salt]):
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
            asks=f"the items of users{known}, at most {plan.user_items:,} of each, as tables",
            work="weighs items, table",
            sends="a table of fixed length",
            detail=f"Each user puts equal weights on up to {plan.user_items:,} items{known}. The participant puts "
            f"names and weights into a table with room for at least {plan.table_capacity:,} items, whose length does "
            "not depend on them.",
        )

    @property
    def table(self) -> TableShape:
        """The table of the plan."""
        return table_shape(self.plan, self.plan.user_items)
