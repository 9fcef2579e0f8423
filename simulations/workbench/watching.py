"""Who follows a run while it goes on; this one shows nothing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

LEFT_OUT = "%d rows without a user, an item or a count were left out; strict refuses the first of them"

if TYPE_CHECKING:
    # It loads numpy, and commands that only show their help have a watcher, too.
    from fedhist.protocol.events import Event


class Watcher:
    """Follows a run and shows nothing."""

    def phase(self, name: str) -> None:
        """A phase begins."""

    def reading(self, stage: str, done: int, total: int) -> None:
        """A pass over a table goes on, see `client.files.read.Following`."""

    def left_out(self, rows: int) -> None:
        """The number of rows that were left out: for the owner alone, in the log where there is no screen."""
        logging.getLogger("fedhist").warning(LEFT_OUT, rows)

    def observe(self, event: Event) -> None:
        """Something happened in the run."""

    def say(self, text: str) -> None:
        """Something to tell the user at once."""
