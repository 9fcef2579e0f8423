"""The part of a run's page that says what simulated faults did."""

from __future__ import annotations

from typing import Any

from fedhist.simulations.fault_effects import effect_words, kind_words
from fedhist.simulations.report.escaping import text
from fedhist.simulations.report.pieces import BADGE, section, table
from fedhist.simulations.report.run_data import RunData

_LEAD = "Faults of nodes were simulated. They change nothing in what the run cost."


def faults_section(run: RunData) -> str:
    """What faults did; nothing for a run without."""
    faults: dict[str, Any] | None = run.document.get("faults")
    if faults is None:
        return ""
    threshold = None if run.found_nothing else run.threshold
    kinds = kind_words(faults, masked=run.plan.is_masked, threshold=threshold)
    effect, told = faults.get("effect"), ""
    if effect is not None and run.document.get("relative_loss") is not None:
        words = effect_words(effect, loss=_first(run, "relative_loss"), threshold=run.threshold)
        told = f"<h3>Their effect {BADGE}</h3>{_paragraphs(words)}"
    panels = (f"{_paragraphs(kinds)}{told}", _counts(run, faults))
    content = "".join(f'<div class="panel">{panel}</div>' for panel in panels if panel)
    return section("faults", "What faults did", f'<div class="grid">{content}</div>', lead=_LEAD)


def _counts(run: RunData, faults: dict[str, Any]) -> str:
    """The nodes of each kind in each round, and who is in the sum."""
    struck, reports = faults["rounds"], run.document.get("rounds", {})
    kinds = dict.fromkeys(kind for one in struck.values() for kind in (*one["missing"], *one["lying"]))
    rows = [
        [
            f"nodes: {kind}",
            *(one["missing"].get(kind, 0) + one["lying"].get(kind, 0) for one in struck.values()),
        ]
        for kind in kinds
    ]
    rows.append(["nodes in the sum", *(f"{reports[name]['answered']:,}" for name in struck)])
    rows.append(["users in the sum", *(f"{reports[name]['users']:,}" for name in struck)])
    if any(one["users_lying"] for one in struck.values()):
        rows.append(["users of liars in it", *(f"{one['users_lying']:,}" for one in struck.values())])
    return table(["", *struck], rows)


def _first(run: RunData, name: str) -> float:
    """Of several trials the first one's, which the faults are about."""
    trials = run.document.get("trials")
    return float(trials[0][name] if trials else run.document[name])


def _paragraphs(sentences: list[str]) -> str:
    return "".join(f"<p>{text(one, 600)}</p>" for one in sentences)
