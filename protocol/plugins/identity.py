"""What a plugin is called and which code it is, so that two sides of a run can tell whether they have the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fedhist.protocol.errors import InvalidInput

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,63}")
_TEXT = re.compile(
    r"(selector|measurement|release) ([a-z0-9][a-z0-9._-]{0,63})(@[A-Za-z0-9.+!_-]{1,64})? sha256:[0-9a-f]{64}"
)


class Kind(StrEnum):
    """What can be written outside of the project."""

    SELECTOR = "selector"
    MEASUREMENT = "measurement"
    RELEASE = "release"

    @property
    def group(self) -> str:
        """The group of entry points of installed packages."""
        return f"fedhist.{self.value}s"

    @property
    def words(self) -> str:
        """For sentences."""
        return "release rule" if self is Kind.RELEASE else self.value


@dataclass(frozen=True)
class Identity:
    """A plugin's name and code.

    Args:
        kind: what it is.
        name: as plans and options name it.
        version: as its author calls it; may be empty.
        digest: SHA-256 of the code, in hexadecimal digits.
    """

    kind: Kind
    name: str
    version: str
    digest: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise InvalidInput(
                f"the name of a {self.kind.words} is {self.name!r}",
                allowed="up to 64 lower-case letters, digits, dots and dashes",
                advice="set name on the class, or pass name= to register",
            )
        if not isinstance(self.version, str) or (self.version and not _VERSION.fullmatch(self.version)):
            raise InvalidInput(
                f"the version of the {self.kind.words} {self.name} is {self.version!r}",
                allowed="a short text such as 1.0",
            )

    def __str__(self) -> str:
        version = f"@{self.version}" if self.version else ""
        return f"{self.kind.value} {self.name}{version} sha256:{self.digest}"


@dataclass(frozen=True)
class Origin:
    """Where a plugin's code comes from.

    Args:
        how: "file", "installed", or "session" for what a notebook or a script made.
        place: the file's path, the distribution's name, or the module's.
        digest: of the code.
        version: of an installed distribution.
        whole: a file's whole path, by which it is known: the same one in two spellings is one file.
        code: a file's content, for worker processes.
    """

    how: str
    place: str
    digest: str
    version: str = ""
    whole: str = ""
    code: bytes = field(default=b"", repr=False, compare=False)

    def is_same(self, other: Origin) -> bool:
        """Whether both are the same file, package or session, in whatever version."""
        if self.how == "file":
            return self.whole == other.whole
        return self.how == other.how and (self.place == other.place or self.how == "session")

    @property
    def words(self) -> str:
        """For sentences."""
        return {"file": self.place, "installed": f"the package {self.place}"}.get(self.how, "this session")


@dataclass(frozen=True, eq=False)
class Plugin:
    """A registered thing with its identity.

    Args:
        identity: its name and code.
        thing: what its registry keeps.
        origin: where it comes from.
        given: what was registered, which is what worker processes get.
    """

    identity: Identity
    thing: Any
    origin: Origin
    given: Any = field(repr=False)


def is_identity(text: object) -> bool:
    """Whether this is the text of an identity that a plan may carry."""
    return isinstance(text, str) and _TEXT.fullmatch(text) is not None


def first_difference(claimed: tuple[str, ...], here: tuple[str, ...]) -> tuple[str, str]:
    """What a plan uses and what there is here, for a sentence; both are texts of identities."""
    found: Mapping[str, str] = {_called(text): text for text in here}
    for text in claimed:
        called = _called(text)
        if called not in found:
            return f"this plan uses the {_shown(text)}", "here it is missing"
        if found[called] != text:
            return f"this plan uses the {_shown(text)}", f"here it has other code, {_shown(found[called])}"
    for text in here:
        if text not in claimed:
            return "this plan does not name all of its plugins", f"here its {_shown(text)} is one"
    return "this plan names a plugin twice, or in another order", "here each is named once"


def not_here(claimed: tuple[str, ...], here: tuple[str, ...]) -> str:
    """The first release rule or measurement that is not here by its name, whatever its code; empty for none."""
    names = {_called(text) for text in here}
    missing = (text for text in claimed if not text.startswith(Kind.SELECTOR) and _called(text) not in names)
    return next(map(_shown, missing), "")


def _called(text: str) -> str:
    """Kind and name."""
    kind, name, *_ = text.split(" ")
    return f"{kind} {name.partition('@')[0]}"


def _shown(text: str) -> str:
    """The identity with a short digest."""
    return text[: text.index("sha256:") + len("sha256:") + 12]
