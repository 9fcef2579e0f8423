"""Where a campaign stands: what its folder holds and what its ledger says, which have to agree.

A window's run is reserved in the ledger, charges it before each draw, writes its folder whole, and is then marked as
released. So what is found after a crash, at any point, is one of these:

| folder | entry in the ledger        | what happened                                          | status       |
|--------|----------------------------|--------------------------------------------------------|--------------|
| no     | none, or without a charge  | nothing was drawn                                      | due, waiting |
| no     | with charges               | noise was drawn, and its result is lost                | broken off   |
| no     | open                       | one of these two, or a run that goes on                | unfinished   |
| yes    | with charges               | it is released, even if nobody came to say so          | released     |
| yes    | none, or without a charge  | not ours, or the ledger is another one                 | refused      |
| no     | released                   | the folder was taken away, or is a copy of an older one | refused      |
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from fedhist.protocol.errors import InvalidFile
from fedhist.protocol.plan.window import Window
from fedhist.protocol.privacy.concentrated import Spending
from fedhist.server.campaign.definition import DEFINITION_FILE, Definition, read_definition
from fedhist.server.ledger.budget_file import BudgetFile, OpenRun, RunRecord

RESULT_FILE = "result.json"
KIND = "campaign"
Status = Literal["released", "unfinished", "broken off", "due", "waiting"]


@dataclass(frozen=True)
class WindowState:
    """A window of the calendar.

    Args:
        window: the window.
        folder: where its release lies, or will lie.
        runs: its entries in the ledger, in order.
        due_from: the first moment at which it is due.
        document: what its result.json holds; None before it is released.
    """

    window: Window
    folder: Path
    runs: tuple[RunRecord, ...]
    due_from: datetime
    document: dict[str, Any] | None = None

    @property
    def counted(self) -> Spending:
        """What all its runs count."""
        return Spending.total(run.counted for run in self.runs)

    def status(self, now: datetime) -> Status:
        """How far it has come. Unfinished is a run that goes on, or whose process died and nobody has looked since."""
        if self.document is not None:
            return "released"
        if any(run.status == "open" for run in self.runs):
            return "unfinished"
        if any(run.charges for run in self.runs):
            return "broken off"
        return "due" if now >= self.due_from else "waiting"


def opened(folder: Path, *, moved: bool = False) -> Definition:
    """The campaign in this folder, which has to lie where it was made; with `moved`, from now on here."""
    definition = read_definition(folder)
    if definition.place == folder.resolve():
        return definition
    if not moved:
        raise InvalidFile(
            f"the campaign in {folder} was made in {definition.place}, and two copies of it would both run",
            allowed="a campaign where it was made",
            advice="if it was moved, and no copy is left behind, say so once with --moved",
            code="campaign-moved",
        )
    if (definition.place / DEFINITION_FILE).exists():
        raise InvalidFile(
            f"the campaign in {folder} also lies in {definition.place}",
            allowed="--moved for a folder of which there is no other copy",
            advice="remove one of them",
            code="campaign-copied",
        )
    return definition.moved(folder)


def ledger_of(definition: Definition) -> BudgetFile:
    """The campaign's ledger; InvalidFile if it is gone, or if it does not know this campaign."""
    if not definition.ledger.exists():
        raise InvalidFile(
            f"the campaign's ledger {definition.ledger} is gone, and with it what was spent",
            allowed="the ledger that the campaign was made with",
            advice="put it back; a new one would count from zero",
            code="ledger-gone",
        )
    budget = BudgetFile.open(definition.ledger, create=False)
    known = [run for run in budget.runs() if run.label == definition.label and run.plan.get("kind") == KIND]
    if not known:
        raise InvalidFile(
            f"the ledger {definition.ledger} does not know the campaign: it was replaced, or is an older copy",
            allowed="the ledger that the campaign was made with",
            advice="put it back; a new one would count from zero",
            code="ledger-replaced",
        )
    if known[0].plan_hash != definition.digest:
        raise InvalidFile(
            f"{definition.place / DEFINITION_FILE} or its list of items is not as it was made",
            allowed="the files as fedhist wrote them",
            advice="restore them; for another plan or calendar make a new campaign with the same ledger",
            code="campaign-changed",
        )
    return budget


def states_of(definition: Definition, runs: Sequence[RunRecord]) -> list[WindowState]:
    """Every window of the calendar; InvalidFile if the folder and the ledger contradict each other."""
    own = [run for run in runs if run.label == definition.label and run.plan.get("kind") != KIND]
    states = [
        WindowState(
            window=window,
            folder=definition.folder_of(window),
            runs=tuple(run for run in own if run.plan.get("window") == window.text),
            due_from=definition.due_from(window),
            document=_document_in(definition.folder_of(window), window),
        )
        for window in definition.windows
    ]
    for state in states:
        _check_agreement(state, definition)
    return states


def settle(budget: BudgetFile, states: Sequence[WindowState]) -> list[int]:
    """End the runs of processes that died, for somebody who holds the campaign's lock; the numbers of those closed.

    One whose folder is there is released. Any other is closed, so that it counts what it charged: a run that charged
    nothing has drawn nothing, and counts nothing. Should its process live after all, in a copy of the folder, it can
    charge no more, and so draws no more.
    """
    closed = []
    for state in states:
        for run in state.runs:
            if run.status != "open":
                continue
            if state.document is not None and run.plan == state.document["plan"]:
                OpenRun(budget.path, run.id, run.plan_hash, run.time, run.reserved).released()
            else:
                budget.close(run.id)
                closed.append(run.id)
    return closed


def _check_agreement(state: WindowState, definition: Definition) -> None:
    if state.document is not None:
        if not any(run.charges and run.plan == state.document["plan"] for run in state.runs):
            raise InvalidFile(
                f"{state.folder} holds a release that the ledger {definition.ledger} does not know",
                allowed="releases of this campaign, all charged to its ledger",
                advice="the ledger is an older copy, which should be put back, or the folder is somebody else's",
                code="unknown-release",
            )
    elif any(run.status == "released" for run in state.runs):
        raise InvalidFile(
            f"by the ledger the window {state.window} was released, and {state.folder} is not there",
            allowed="a campaign with all its releases",
            advice="put the folder back: it was removed, or this is an older copy of the campaign",
            code="release-gone",
        )


def _document_in(folder: Path, window: Window) -> dict[str, Any] | None:
    """The document of the release in this folder, None if there is no folder."""
    if not folder.exists() and not folder.is_symlink():
        return None
    try:
        document = json.loads((folder / RESULT_FILE).read_text(encoding="utf-8"))
        if document["plan"]["window"] == window.text:
            return dict(document)
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, RecursionError):
        pass
    raise InvalidFile(
        f"{folder} is not a release of the window {window}",
        allowed="releases that the campaign wrote itself",
        advice="move it somewhere else",
        code="not-this-release",
    )
