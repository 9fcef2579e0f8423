"""Where a population's list of items comes from. A list that was inferred from the data reveals what users have."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from fedhist.protocol.errors import InvalidInput

if TYPE_CHECKING:
    from fedhist.protocol.histograms import Population


class ItemOrigin(StrEnum):
    """Where the list of items comes from."""

    PUBLIC = "public"
    """A list from elsewhere, or the column numbers of a matrix."""
    SYNTHETIC = "synthetic"
    """The users are synthetic: they are nobody, and what is learned of them harms nobody."""
    DATA = "data"
    """Every item that some user has. Harmless over an open domain, where the release decides which keys are shown."""
    TOP = "top"
    """The items with the largest totals. One user can change which, over an open domain too."""

    def tells(self, domain: str) -> bool:
        """Whether a release over these items, of an open or closed domain, is not private, whatever noise it has."""
        return self is ItemOrigin.TOP or (self is ItemOrigin.DATA and domain == "closed")

    @property
    def reason(self) -> str:
        """Why such a release is not private."""
        return f"the {'top ' if self is ItemOrigin.TOP else ''}items were inferred from the data"

    @property
    def note(self) -> str:
        """The reason, and what to do."""
        return f"not private: {self.reason}; give a public list with --items-file, or use --domain open"


def origin_of(population: Population) -> ItemOrigin:
    """Where the items come from: public if the population does not say."""
    origin: ItemOrigin = getattr(population, "item_origin", ItemOrigin.PUBLIC)
    return origin


def why_never_private(origin: ItemOrigin, domain: str, *, seeded: bool, evaluated: bool) -> list[str]:
    """Why a run is not private whatever its mechanisms are, a sentence each; none for one that may be.

    With the mechanisms this is all that decides it: a release says `private` by it, and a ledger refuses a run by it.

    Args:
        origin: where the items come from.
        domain: "closed", or "open" where the release decides which items are shown.
        seeded: whether its noise can be drawn again.
        evaluated: whether it is compared with the exact data.
    """
    reasons = [origin.note] if origin.tells(domain) else []
    if evaluated:
        reasons.append("evaluated run, not private: it was compared with the exact data")
    if seeded:  # audited: seeds say so
        reasons.append("seeded run, not private: anyone who knows the seed can subtract the noise")
    return reasons


def check_private(origin: ItemOrigin, domain: str, *, seeded: bool, evaluated: bool, charged: bool) -> None:
    """Refuse to infer items from people's data unasked, and to charge people for what does not protect them.

    Synthetic users are nobody: their runs are charged as they are.
    """
    inferred = origin.tells(domain)
    if inferred and not evaluated:
        raise InvalidInput(
            f"the {'top ' if origin is ItemOrigin.TOP else ''}items would be inferred from the data, which is not "
            "private",
            allowed="a public list with --items-file, or items that are found privately with --domain open, both "
            "without --top-items",
            advice="to look at data of your own without privacy, add --evaluate",
            code="items-from-the-data",
        )
    if charged and origin is not ItemOrigin.SYNTHETIC and (evaluated or seeded):  # audited: charged
        raise InvalidInput(
            f"--ledger with {'--evaluate' if evaluated else '--seed'}, and such a run is not private",
            allowed="--ledger without --evaluate and --seed; with both of them for synthetic users",
            advice="for an experiment on data of your own, leave --ledger out",
            code="not-private",
        )
