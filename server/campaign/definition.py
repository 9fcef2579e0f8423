"""What a campaign is: a plan, a calendar, a ledger, and how data is read. Written once, whole or not at all.

`campaign.json` in the campaign's folder holds it, and `items.txt` the public list of a closed domain. Its digest is in
the ledger, as an entry that costs nothing: so a ledger that was replaced and a definition that was changed are both
found out. Only `place`, where the folder lies, may change.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedhist.protocol.errors import FedhistError, InvalidFile, InvalidInput, InvalidPlan, NotWritten
from fedhist.protocol.labels.item_list import parse_items, read_items
from fedhist.protocol.plan.window import Window
from fedhist.protocol.privacy.concentrated import Limit, Spending
from fedhist.server.campaign.budget import WindowBudget
from fedhist.server.result_folder import new_folder, write_text

DEFINITION_FILE, ITEMS_FILE = "campaign.json", "items.txt"
VERSION = 1
THRESHOLDS = ("choose", "narrow", "first")
"""How windows after the first get their threshold."""
DISCOVERIES = ("each", "first")
"""In which windows an open domain's items are found."""

_TAG = b"fedhist/1/campaign/definition\x00"
_SEPARATOR = "--"


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A campaign.

    Args:
        name: of 16 digits, drawn when it was made.
        made: when that was.
        place: where its folder lies.
        windows: the calendar, in order.
        delay: days after a window's end before it is due, for data that comes late.
        spare: windows that the total has room for beside those of the calendar, to repeat some that broke off.
        ledger: the file that all windows are charged to.
        total: what they may cost together, for one user, ever.
        plan: fields of the windows' plans, without budgets, users and window.
        first, later: the budgets of a window that chooses and finds everything, and of one that need not.
        thresholds: one of THRESHOLDS.
        discover: one of DISCOVERIES.
        reading: how the data is read: names of columns, a separator, bins. Not the data itself.
        items: the public list of a closed domain, None for an open one or bins.
        recorded: the file that it was read from, None before there is one. A later version may write other keys.
    """

    name: str
    made: datetime
    place: Path
    windows: tuple[Window, ...]
    delay: int
    spare: int
    ledger: Path
    total: Limit
    plan: Mapping[str, Any]
    first: WindowBudget
    later: WindowBudget
    thresholds: str
    discover: str
    reading: Mapping[str, Any]
    items: tuple[str, ...] | None = field(default=None, repr=False)
    recorded: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    @property
    def label(self) -> str:
        """What the ledger calls it."""
        return f"campaign {self.name}"

    @property
    def digest(self) -> str:
        """Names the definition, wherever its folder lies."""
        document = self._document() | {"place": None, "items": None if self.items is None else [*self.items]}
        return hashlib.sha256(_TAG + json.dumps(document, sort_keys=True).encode()).hexdigest()

    def folder_of(self, window: Window) -> Path:
        """Where the release of a window lies, or will lie."""
        return self.place / window.text.replace("/", _SEPARATOR)

    def due_from(self, window: Window) -> datetime:
        """The first moment at which the window is due."""
        return datetime.fromtimestamp(window.end + 86_400 * self.delay, UTC)

    def write(self, before: Any) -> None:
        """Make the folder, after a call that may still fail and leave nothing."""
        try:
            with new_folder(self.place) as folder:
                if self.items is not None:
                    write_text(folder / ITEMS_FILE, _lines(self.items))
                write_text(folder / DEFINITION_FILE, json.dumps(self._document(), indent=2) + "\n")
                before()
        except NotWritten as problem:
            reason = getattr(problem.__cause__, "strerror", None) or "the disk refused it"
            raise NotWritten(
                f"the campaign's folder {self.place} can't be written ({reason}): there is no campaign, and nothing "
                "was charged"
            ) from problem.__cause__

    def moved(self, folder: Path) -> Definition:
        """The same campaign, whose folder lies here now. On return that is on disk."""
        here = replace(self, place=folder.resolve())
        partial = here.place / f".{DEFINITION_FILE}.partial"
        write_text(partial, json.dumps(here._document(), indent=2) + "\n")
        os.replace(partial, here.place / DEFINITION_FILE)  # noqa: PTH105 - pathlib's has the same call behind it
        return here

    def _document(self) -> dict[str, Any]:
        if self.recorded is not None:
            return dict(self.recorded) | {"place": str(self.place)}
        return {
            "fedhist-campaign": VERSION,
            "name": self.name,
            "made": self.made.isoformat(),
            "place": str(self.place),
            "windows": [window.text for window in self.windows],
            "delay": self.delay,
            "spare": self.spare,
            "ledger": str(self.ledger),
            "total": {"epsilon": self.total.epsilon, "delta": self.total.delta},
            "plan": dict(self.plan),
            "first": _budget_document(self.first),
            "later": _budget_document(self.later),
            "thresholds": self.thresholds,
            "discover": self.discover,
            "reading": dict(self.reading),
        }


def read_definition(folder: Path) -> Definition:
    """The campaign in this folder, where it was made; InvalidFile, in one sentence, for anything else."""
    path = folder / DEFINITION_FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidFile(
            f"{folder} is no campaign: it has no {DEFINITION_FILE}",
            allowed="a folder that 'fedhist campaign new' made",
            code="not-a-campaign",
        ) from None
    except (OSError, UnicodeDecodeError, ValueError, RecursionError):
        raise _damaged(path) from None
    if isinstance(document, dict) and isinstance(version := document.get("fedhist-campaign"), int):
        if version > VERSION:
            raise InvalidFile(
                f"{path} was written by a newer fedhist", allowed=f"version {VERSION} of campaigns"
            )
    else:
        raise _damaged(path)
    items = folder / ITEMS_FILE
    try:
        return _definition(document, tuple(read_items(items)) if items.exists() else None)
    except (FedhistError, KeyError, TypeError, ValueError, AttributeError):
        raise _damaged(path) from None


def check_list(items: Sequence[str]) -> None:
    """Refuse a list of items that its file would not give back."""
    try:
        read = parse_items(_lines(items).encode("utf-8"), name="the list of items")
    except UnicodeEncodeError:
        read = []
    if read != list(items):
        raise InvalidInput(
            "the list of items has a name that is empty, or that a line of text can't hold",
            allowed="names of one line each, in Unicode",
            code="bad-item",
        )


def check_choices(thresholds: str, discover: str, plan: Mapping[str, Any]) -> None:
    """Refuse rules for later windows that do not exist, or that the plan has no use for."""
    if thresholds not in THRESHOLDS:
        raise InvalidInput(f"--thresholds is {thresholds!r}", allowed=", ".join(THRESHOLDS), code="bad-value")
    if discover not in DISCOVERIES:
        raise InvalidInput(f"--discover is {discover!r}", allowed=", ".join(DISCOVERIES))
    fixed = plan.get("selector") == "fixed" or plan.get("threshold") is not None
    if thresholds != "choose" and (fixed or plan.get("mechanism") == "auto" or plan.get("debias")):
        raise InvalidPlan(
            f"--thresholds {thresholds} with a plan that fixes its threshold, or has more than one",
            allowed="--thresholds choose, or a plan that chooses one threshold for one mechanism",
            code="fixed-threshold",
        )
    found = plan.get("domain") == "open" and plan.get("release") in (None, "discover")
    if discover != "each" and not found:
        raise InvalidPlan(
            f"--discover {discover} with a plan that finds no items",
            allowed="--discover with an open domain and the release discover",
            code="finds-no-items",
        )


def _lines(items: Sequence[str]) -> str:
    return "\n".join(items) + "\n"


def _definition(document: Mapping[str, Any], items: tuple[str, ...] | None) -> Definition:
    made = datetime.fromisoformat(document["made"])
    if made.utcoffset() is None:
        raise ValueError
    return Definition(
        name=str(document["name"]),
        made=made,
        place=Path(document["place"]),
        windows=tuple(Window.parse(text) for text in document["windows"]),
        delay=int(document["delay"]),
        spare=int(document["spare"]),
        ledger=Path(document["ledger"]),
        total=Limit(**document["total"]),
        plan=dict(document["plan"]),
        first=_budget_in(document["first"]),
        later=_budget_in(document["later"]),
        thresholds=document["thresholds"],
        discover=document["discover"],
        reading=dict(document["reading"]),
        items=items,
        recorded=dict(document),
    )


def _budget_document(budget: WindowBudget) -> dict[str, Any]:
    cost = budget.cost
    return {
        **budget.fields,
        "cost": {"epsilon": cost.epsilon, "delta": cost.delta, "rho": cost.rho, "failure": cost.failure},
    }


def _budget_in(document: Mapping[str, Any]) -> WindowBudget:
    fields = {name: value for name, value in document.items() if name != "cost"}
    return WindowBudget(fields, Spending(**document["cost"]))


def _damaged(path: Path) -> InvalidFile:
    return InvalidFile(
        f"{path} is damaged",
        allowed="the file as fedhist wrote it",
        advice="restore it from a copy",
        code="damaged-campaign",
    )
