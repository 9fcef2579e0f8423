"""Tables whose number of users is hidden: all that asks for it gets a number that the caller gave.

All users are in every sum, also if they are more than the given number, or fewer. What would count them says the given
number or nothing: the total of a round, who answered, how far a pass is, sizes and times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.histograms import Histograms, Labels, Population, labels_of
from fedhist.protocol.item_lists import ItemOrigin, origin_of
from fedhist.protocol.plan import Plan


@dataclass(frozen=True, eq=False)
class GivenUsers:
    """A population with the given number of users, whatever the real one is.

    A user without items comes first: they are in no sum that is read, and a table of nobody has somebody to measure a
    message with.

    Args:
        whole: all real users.
        users: the given number.
    """

    whole: Population
    users: int

    @property
    def domain_size(self) -> int:
        """The number of different items."""
        return self.whole.domain_size

    @property
    def labels(self) -> Labels | None:
        """What the items are called."""
        return labels_of(self.whole)

    @property
    def item_origin(self) -> ItemOrigin:
        """Where the items come from."""
        return origin_of(self.whole)

    def shards(self) -> Iterator[Histograms]:
        """The user without items, then all real ones."""
        nothing = np.zeros(0, dtype=np.int64)
        yield Histograms(np.zeros(2, dtype=np.int64), nothing, nothing, self.domain_size)
        for shard in self.whole.shards():
            yield replace(shard, first_user=shard.first_user + 1)  # audited: all users


def with_given_users(population: Population, plan: Plan) -> Population:
    """The population as the plan may know it."""
    if not plan.hides_users or isinstance(population, GivenUsers):
        return population
    return GivenUsers(population, plan.users)


def check_hiding(plan: Plan, *, evaluate: bool, counts: bool) -> None:
    """Refuse to hide the number of users from a run that shows it.

    Args:
        plan: of the run.
        evaluate: whether it is compared with the exact data.
        counts: whether its transport counts users: on nodes, and with faults.
    """
    shown = "an evaluated run" if evaluate else "nodes or faults" if counts else ""
    if plan.hides_users and shown:
        raise InvalidInput(
            f"the relation add-or-remove-one with {shown}, which shows how many users there are",
            allowed="add-or-remove-one on the engines in-process and ray, without --evaluate, --dropout and --faulty",
            advice="use --neighbours zero-out, under which the number of users is public and the noise the same",
            code="shows-users",
        )
