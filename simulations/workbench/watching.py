"""Who follows a run while it goes on; this one shows nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # It loads numpy, and commands that only show their help have a watcher, too.
    from fedhist.protocol.events import Event


class Watcher:
    """Follows a run and shows nothing."""

    def phase(self, name: str) -> None:
        """A phase begins."""

    def reading(self, stage: str, done: int, total: int) -> None:
        """A pass over a table goes on, see `client.files.read.Following`."""

    def observe(self, event: Event) -> None:
        """Something happened in the run."""

    def say(self, text: str) -> None:
        """Something to tell the user at once."""
