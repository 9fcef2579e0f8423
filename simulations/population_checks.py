"""Which populations a simulation refuses: those that do not fit its plan, and those that have nothing."""

from __future__ import annotations

from fedhist.protocol.errors import InvalidPopulation
from fedhist.protocol.histograms import Population, labels_of
from fedhist.protocol.plan import Plan
from fedhist.protocol.wire.keyed_codec import MAX_LABEL_BYTES, label_bytes


def check_not_empty(population: Population) -> None:
    """Refuse a population in which nobody has anything; as a rule the first shard settles it.

    For simulations with the truth: the refusal tells what users have.
    """
    if not any(
        bool((shard.counts[shard.offsets[0] : shard.offsets[-1]] > 0).any()) for shard in population.shards()
    ):
        if getattr(population, "dropped_count", 0):
            raise InvalidPopulation(
                f"none of the {population.domain_size:,} listed items or bins is in the data, which has others",
                allowed="a list with an item of the data, or bins around some values",
                advice="compare the spelling of a few names, or write them alike with --normalise casefold",
                code="no-listed-item",
            )
        raise InvalidPopulation(
            "no user has any item",
            allowed="a population with at least one count",
            advice="check the data",
            code="no-items",
        )


def check_labels(population: Population, plan: Plan) -> None:
    """Refuse a name that is too long for a message; a closed domain's names never travel.

    For simulations with the truth, which know all names beforehand: the refusal tells of one user's item. Devices, and
    runs without the truth, leave such items out.
    """
    if plan.items is not None:
        return
    labels = labels_of(population) or ()
    most = min(plan.max_item_bytes, MAX_LABEL_BYTES) if plan.has_table else MAX_LABEL_BYTES
    # A character has up to four bytes, so as a rule the numbers of characters settle it.
    if 4 * max(map(len, map(str, labels)), default=0) <= most:
        return
    longest = max((len(label_bytes(label)) for label in labels), default=0)
    if plan.has_table and longest > plan.max_item_bytes:
        raise InvalidPopulation(
            f"an item's name has {longest} bytes",
            allowed=f"up to {plan.max_item_bytes:,} bytes of UTF-8 under masking, the plan's max_item_bytes",
            advice="raise --max-item-bytes, or shorten or hash long names",
        )


def check_fits(population: Population, plan: Plan) -> None:
    """Refuse a plan that was made for another population, and a population whose names do not fit its items."""
    labels = labels_of(population)
    if labels is not None and len(labels) != population.domain_size:
        raise InvalidPopulation(
            f"there are {len(labels):,} labels for {population.domain_size:,} items",
            allowed="one label for each item, or no labels",
            code="wrong-number-of-labels",
        )
    if plan.users != population.users or plan.items not in (None, population.domain_size):
        planned = f"{plan.users} users" + ("" if plan.items is None else f" and {plan.items} items")
        raise InvalidPopulation(
            f"the population has {population.users} users and {population.domain_size} items, but the plan is for "
            f"{planned}",
            allowed="a plan made for this population",
            code="other-size",
        )
