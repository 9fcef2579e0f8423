"""The methods of a comparison: what they are called, and which is the best for which users."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]

AXES = {
    "items": "items d",
    "total_epsilon": "epsilon of all rounds",
    "total_delta": "delta of all rounds",
    "epsilon_select": "epsilon of the choice",
    "epsilon": "epsilon of the histogram",
    "max_threshold": "largest threshold C_m",
    "delta": "delta of the histogram",
    "delta_select": "delta of the choice",
    "threshold": "threshold C",
}
"""The numbers that a comparison may vary, and what an axis calls them."""

BUDGETS = ("total_epsilon", "total_delta", "epsilon", "delta", "epsilon_select", "delta_select")
_SHORT = {
    "items": "d", "total_epsilon": "total epsilon", "total_delta": "total delta", "epsilon": "epsilon",
    "delta": "delta", "epsilon_select": "epsilon'", "delta_select": "delta'", "max_threshold": "C_m",
    "threshold": "C",
}  # fmt: skip
_KINDS = ("selector", "mechanism", "release", "debias", "masking", "noise_from")
"""What a method has, or has not."""

_WORDS = {
    "debias": {"poisson": "debiased"},
    "masking": {"none": ""},
    "noise_from": {"server": "", "devices": "noise by devices"},
}
NOT_PRIVATE = "not private"
_NAMED = 4
# A loss from here on is no better than that of releasing nothing.
_NOTHING = 0.999


def measure_of(row: Row) -> str:
    """What methods are ranked by, as the beginning of its columns: loss, or estimate_loss."""
    return str(row.get("ranked_by") or "loss").replace("-", "_")


def varied_numbers(rows: Sequence[Row]) -> list[str]:
    """The numbers that were varied: those in which two rows differ that are alike in all else that came before.

    So a delta that follows from the mechanism, or an epsilon that follows from a total, is none.
    """
    chosen: list[str] = []
    for name in AXES:
        seen: dict[tuple[Any, ...], set[Any]] = {}
        for row in rows:
            alike = (row["data"], *(row.get(one) for one in (*_KINDS, *chosen)))
            if row.get(name) is not None:
                seen.setdefault(alike, set()).add(row[name])
        if any(len(values) > 1 for values in seen.values()):
            chosen.append(name)
    return chosen


def method_names(rows: Sequence[Row], *, without: Collection[str] = ()) -> list[str]:
    """What the method of each row is called: its selector, and whatever else differs between methods.

    Args:
        rows: of one table.
        without: numbers that stand elsewhere, such as on an axis. Items and budgets always do, but for the parts of a
            total.
    """
    kinds = [name for name in _KINDS[1:] if len({row.get(name) for row in rows}) > 1]
    budgets = BUDGETS if all(row.get("total_epsilon") is None for row in rows) else BUDGETS[:2]
    apart = {"items", *budgets, *without}
    numbers = [name for name in varied_numbers(rows) if name not in apart]
    return [_named(row, kinds, numbers) for row in rows]


def _named(row: Row, kinds: Sequence[str], numbers: Sequence[str]) -> str:
    words = [row["selector"]]
    for name in kinds:
        value = row.get(name)
        words.append("" if value is None else _word(name, value))
    words += [f"{_SHORT[name]} {row[name]:,g}" for name in numbers if row.get(name) is not None]
    called = ", ".join(word for word in words if word)
    return called if row["private"] else f"{called} ({NOT_PRIVATE})"


def setting_of(group: Sequence[Row], numbers: Collection[str]) -> str:
    """The items and the budget that the methods of a group share, where they vary: "d 100, epsilon 1"."""
    # Some methods spend no delta, whatever was offered.
    shared = {name: max((row.get(name) or 0 for row in group), default=0) for name in ("items", *BUDGETS)}
    return ", ".join(
        f"{_SHORT[name]} {value:,g}" for name, value in shared.items() if name in numbers and value
    )


def _word(name: str, value: Any) -> str:
    return _WORDS.get(name, {}).get(value, str(value))


@dataclass(frozen=True)
class Answer:
    """The best private method for some users and a budget, and those that the trials can't tell from it.

    Args:
        data: the name of the users.
        setting: the items and the budget, where they vary; else empty.
        best: its row.
        same: the rows of methods that are not different, the best of them first.
        unclear: True after a single trial, which tells nothing apart.
        costs: the least and the largest total epsilon of the private methods.
    """

    data: str
    setting: str
    best: Row
    same: tuple[Row, ...]
    unclear: bool
    costs: tuple[float, float]

    @property
    def where(self) -> str:
        """The users and the budget."""
        return f"{self.data}, {self.setting}" if self.setting else self.data

    @property
    def words(self) -> str:
        """The answer as a sentence."""
        measure = measure_of(self.best)
        mean = f"a mean {measure.replace('_', ' ')} of {self.best[f'{measure}_mean']:.4g}"
        said = f"best on {self.where}: {self.best['method']}, with {mean}"
        if self.best[f"{measure}_mean"] >= _NOTHING:
            said += ", where a histogram of zeros loses 1"
        if self.unclear:
            return f"{said}, by a single trial that proves nothing: use more --trials"
        if not self.same:
            return said
        return f"{said}; not different from it: {self.same_words}"

    @property
    def same_words(self) -> str:
        """The methods that are not different, the first few by name."""
        more = len(self.same) - _NAMED
        named = [str(row["method"]) for row in self.same[:_NAMED]]
        return "; ".join([*named, *([f"and {more} more"] if more > 0 else [])])


def cost_words(answers: Sequence[Answer]) -> str:
    """A sentence if methods that are compared do not cost the same; else empty."""
    uneven = [answer for answer in answers if answer.costs[1] > 1.001 * answer.costs[0]]
    if not uneven:
        return ""
    low, high = uneven[0].costs
    return (
        f"methods that are compared do not all cost the same, here from {low:.4g} to {high:.4g}: --total-epsilon "
        "compares them at one cost"
    )


def answers_of(rows: Sequence[Row]) -> list[Answer]:
    """The best method for each set of users and each budget, in the order of the rows."""
    numbers = varied_numbers(rows)
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["data"], row.get("group")), []).append(row)
    answers = []
    for group in groups.values():
        best = next((row for row in group if row.get("result") == "best"), None)
        if best is None or best.get(f"{measure_of(best)}_mean") is None:
            continue
        rivals = [row for row in group if row is not best and row["private"]]
        alike = [row for row in rivals if row.get("result") == "not different"]
        same = tuple(sorted(alike, key=lambda row: float(row.get("gap_mean") or 0)))
        unclear = bool(rivals) and best.get("trials") in (1, 1.0)
        cost = "epsilon_total" if best.get("total_epsilon") is None else "epsilon_tight"
        spent = [row[cost] for row in (best, *rivals) if row.get(cost) is not None] or [0.0]
        costs = (min(spent), max(spent))
        answers.append(Answer(best["data"], setting_of(group, numbers), best, same, unclear, costs))
    return answers
