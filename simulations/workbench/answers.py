"""What several questions about the same people gave: a result for each, and what all of them cost together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedhist.display.html_table import html_table
from fedhist.protocol.errors import RoundFailed
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Cost

if TYPE_CHECKING:
    from fedhist.simulations.simulation import Result


@dataclass(frozen=True)
class Answers(Mapping[str, "Result"]):
    """The results by the questions' names. A question that failed has none.

    Args:
        results: by name.
        failed: why the other questions failed, by name.
        plans: of all questions.
        weights: of all questions.
        total: the most that all of them cost together, by tight composition, whatever came of each.
        basic: the same by addition.
        seed: what the questions' own seeds were made from.
        notes: what to know of all of them.
    """

    results: Mapping[str, Result]
    failed: Mapping[str, RoundFailed]
    plans: Mapping[str, Plan] = field(repr=False)
    weights: Mapping[str, float]
    total: Cost
    basic: Cost
    seed: int | None = None
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Result:
        if name in self.failed:
            raise KeyError(f"{name} failed and has no result: {self.failed[name]}") from self.failed[name]
        return self.results[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def to_json(self) -> dict[str, Any]:
        """One JSON document: what all cost, and each question's own document."""
        first = next(iter(self.plans.values()))
        return {
            "questions": {name: self._document(name) for name in self.plans},
            "users": first.users,
            "users_public": not first.hides_users,
            "neighbours": first.neighbours.value,
            "tight": self.total.to_json(),
            "total": self.basic.to_json(),
            "seed": self.seed,
            "notes": list(self.notes),
        }

    def _document(self, name: str) -> dict[str, Any]:
        weight = {"weight": self.weights[name]}
        if name in self.results:
            return {"status": "released", **weight, **self.results[name].to_json()}
        plan, failure = self.plans[name], self.failed[name]
        # The words of an error may hold what was counted.
        return {"status": "failed", **weight, "reason": type(failure).__name__, "plan": plan.to_json()}

    def _repr_html_(self) -> str:
        """How a notebook shows it: a row for each question, then what all cost."""
        return html_table(f"Answers, {self.cost_words}", self.rows, headings=HEADINGS)

    @property
    def cost_words(self) -> str:
        """What all questions cost together."""
        return f"epsilon {self.total.epsilon:.4g} at delta {self.total.delta:.3g} in all"

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """A row for each question, as HEADINGS name them."""
        rows = list[tuple[str, ...]]()
        for name, plan in self.plans.items():
            start = (name, f"{self.weights[name]:g}", f"{plan.epsilon_select:.4g}", f"{plan.epsilon:.4g}")
            if name in self.failed:
                rows.append((*start, "failed", "", ""))
                continue
            release = self.results[name].release
            threshold = "" if release.found_nothing else f"{release.threshold:,.4g}"
            error = "" if release.found_nothing else f"{release.standard_error:,.4g}"
            rows.append((*start, f"{len(release.histogram):,}", threshold, error))
        return rows


HEADINGS = ("question", "weight", "choice", "histogram", "items", "threshold", "std. error")
"""Of `Answers.rows`; the two in the middle are epsilons."""
