"""Where a population's list of items comes from. A list that was read off the data reveals what users have."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from fedhist.protocol.errors import InvalidInput

if TYPE_CHECKING:
    from fedhist.protocol.histograms import Population


class ItemOrigin(StrEnum):
    """Where the list of items comes from."""

    PUBLIC = "public"
    """A list from elsewhere, the column numbers of a matrix, or a synthetic population."""
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
        return f"the {'top ' if self is ItemOrigin.TOP else ''}items were read off the data"

    @property
    def note(self) -> str:
        """The reason, and what to do."""
        return f"not private: {self.reason}; give a public list with --items-file, or use --domain open"


def origin_of(population: Population) -> ItemOrigin:
    """Where the items come from: public if the population does not say."""
    origin: ItemOrigin = getattr(population, "item_origin", ItemOrigin.PUBLIC)
    return origin


ADVICE = "give the list with --items-file, or use --domain open, in both cases without --top-items"


def check_public_items(origin: ItemOrigin, domain: str, *, where: str, advice: str = ADVICE) -> None:
    """Refuse items that were read off the data where a private release is asked for.

    Args:
        origin: where the items come from.
        domain: "closed", or "open" where the release decides which keys are shown.
        where: what asks for a private release.
        advice: what to do.
    """
    if origin.tells(domain):
        raise InvalidInput(
            f"{where} with {'top ' if origin is ItemOrigin.TOP else ''}items that are read off the data, which is not "
            "private",
            allowed=f"{where} with a public list of items, or with an open domain and all of its items",
            advice=advice,
        )
