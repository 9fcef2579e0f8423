"""Charts as a file beside the figures that were made of them, so that a page can draw the same charts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedhist.simulations.report.charts import (
    AnyChart,
    Bar,
    BarChart,
    BinChart,
    Line,
    LineChart,
    Rule,
    StackChart,
)
from fedhist.simulations.report.run_data import damaged

CHARTS_SUFFIX = ".charts.json"
_KINDS: Mapping[str, Callable[..., AnyChart]] = {
    "lines": LineChart,
    "bins": BinChart,
    "bars": BarChart,
    "parts": StackChart,
}
_PARTS: Mapping[str, Callable[..., object]] = {
    "lines": Line,
    "points": Line,
    "rules": Rule,
    "bars": Bar,
    "parts": Bar,
}


def write_charts(charts: Sequence[AnyChart], heading: Sequence[str], path: Path) -> None:
    """Write the charts, and the lines that stand above them."""
    kinds = {kind: name for name, kind in _KINDS.items()}
    records = [{"kind": kinds[type(chart)], **asdict(chart)} for chart in charts]
    document = {"heading": list(heading), "charts": records}
    path.write_text(json.dumps(document, allow_nan=False) + "\n", encoding="ascii")


def read_charts(path: Path) -> tuple[list[AnyChart], list[str]]:
    """The charts and the lines above them. InvalidFile if the file is damaged."""
    try:
        document = json.loads(path.read_bytes())
        return [_chart(record) for record in document["charts"]], [str(line) for line in document["heading"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise damaged(path) from None


def _chart(record: dict[str, Any]) -> AnyChart:
    kind = _KINDS[record.pop("kind")]
    for name, part in _PARTS.items():
        if name in record:
            record[name] = tuple(part(**one) for one in record[name])
    return kind(**{name: tuple(one) if isinstance(one, list) else one for name, one in record.items()})
