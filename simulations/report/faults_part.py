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
    rows = [
        [
            name,
            f"{report['answered']:,} of {faults['nodes']:,}",
            f"{report['users']:,} of {run.plan.users:,}",
            _kinds(faults["rounds"].get(name, {}).get("missing", {})),
            _kinds(faults["rounds"].get(name, {}).get("lying", {})),
        ]
        for name, report in run.document.get("rounds", {}).items()
    ]
    heads = ["round", "nodes in the sum", "users in the sum", "not in the sum", "lies in the sum"]
    panels = [f'<div class="panel">{_listed(kinds)}{table(heads, rows)}</div>']
    if (effect := faults.get("effect")) is not None and run.document.get("relative_loss") is not None:
        words = effect_words(effect, loss=_first(run, "relative_loss"), threshold=run.threshold)
        panels.append(f'<div class="panel"><h3>Their effect {BADGE}</h3>{_listed(words)}</div>')
    return section("faults", "What faults did", f'<div class="grid">{"".join(panels)}</div>', lead=_LEAD)


def _first(run: RunData, name: str) -> float:
    """Of several trials the first one's: faults are told of that one."""
    trials = run.document.get("trials")
    return float(trials[0][name] if trials else run.document[name])


def _kinds(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.items()) or "none"


def _listed(sentences: list[str]) -> str:
    return f"<ul>{''.join(f'<li>{text(one, 600)}</li>' for one in sentences)}</ul>"
