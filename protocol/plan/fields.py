"""Every field of a plan, declared once: its type, its default, its choices and what it means.

A plan's docstring, its checks of types and choices, the options of the command line and a page of the documentation are
made from it; a test compares the run-config in pyproject.toml with it. Nothing heavy is imported here, so that --help
answers at once.
"""

from __future__ import annotations

import operator
import textwrap
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypedDict, TypeVar, get_type_hints

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.privacy.neighbours import Neighbours

TABLE_TRUST = (
    "an open domain's table under masks is private whatever the other participants hold, but not against participants "
    "that break the protocol: numbers made up for a few cells can make its decoding depend on others' items"
)
"""What masks over an open domain do not give, for help, notes and documents."""

SELECTOR_NAMES = ("weighted-quantile", "quantile", "exponential-v", "fixed", "oracle")
"""The selectors of the project: any other one comes from outside."""

RELEASE_NAMES = ("discover", "truncated-laplace", "laplace-threshold")
"""The releases of the project that a plan may name."""

MECHANISMS = ("gaussian", "laplace")
"""What a histogram is released with. A plan may leave the choice to the run."""

_T = TypeVar("_T")
FILLED_IN: Any = None
"""The default of a field that a caller may leave out and that construction then fills in."""


def _about(
    meaning: str, *, choices: tuple[str, ...] = (), filled_in: str = "", symbol: str = ""
) -> Mapping[str, Any]:
    """What is known of a field beside its type and default.

    Args:
        meaning: the help text.
        choices: the texts that are allowed; none for any.
        filled_in: what construction puts instead of None, in words.
        symbol: the name of the value in help texts.
    """
    return {"meaning": meaning, "choices": choices, "filled_in": filled_in, "symbol": symbol}


def _field(default: _T, meaning: str, **about: Any) -> _T:
    return field(default=default, metadata=_about(meaning, **about))


@dataclass(frozen=True, kw_only=True)
class PlanFields:
    """The fields of `Plan`, in the order of its JSON, with the types that a reader finds."""

    users: int = field(metadata=_about("The number of users (n); public."))
    items: int | None = _field(
        None, "The number of items of a closed domain (d); public. An open domain has none."
    )
    domain: str = _field(
        "closed",
        "closed: the items are a public list, and all of them are released; open: nobody can list them, and those that "
        "enough users have are released.",
        choices=("closed", "open"),
    )
    mechanism: str = _field(
        FILLED_IN,
        "The noise of the histogram. gaussian: a user's counts are scaled down until their l2 norm is at most the "
        "threshold, and delta is spent. laplace: until their l1 norm is, without delta over a closed domain; in one "
        "release above a bar (see --release) a random part of the counts is kept instead. auto chooses between both "
        "privately, together with the threshold.",
        choices=(*MECHANISMS, "auto"),
        filled_in="gaussian; auto after a discovery; laplace for one release above a bar, for one debiased item, and "
        "in commands with --delta 0",
    )
    selector: str = _field(
        FILLED_IN,
        "How the threshold, the contribution bound of a user, is chosen. Closed domain, and after a discovery: "
        "weighted-quantile, quantile (laplace, or debias). One release above a bar: exponential-v. Without a choice: "
        "fixed, which takes --threshold. The paper's, for comparison: dpsgd, output-perturbation, m-quantile; above a "
        "bar exponential-v-paper, exponential-sharp. Not private, for comparison: oracle; above a bar also median, "
        "p90.",
        filled_in="weighted-quantile; quantile with debias; exponential-v for one release above a bar",
        symbol="NAME",
    )
    threshold: float | None = _field(
        None, "Selector fixed: the contribution bound itself, in counts of one user.", symbol="C"
    )
    epsilon: float = _field(
        1.0,
        "Privacy budget of the released histogram; a smaller one is more private and less exact. The choice of the "
        "threshold has a budget of its own, --epsilon-select.",
        symbol="E",
    )
    delta: float = _field(
        FILLED_IN,
        "Delta of the released histogram, a probability well below 1 / users. Roughly how often epsilon may not hold.",
        filled_in="1 / (10 users), at most 1e-6; 0 for laplace over a closed domain",
        symbol="D",
    )
    epsilon_select: float = _field(
        0.1,
        "Privacy budget of choosing the threshold, beside --epsilon. An open domain with masking spends as much again "
        "on testing whether its items fit into --max-items.",
        symbol="E",
    )
    delta_select: float = _field(
        FILLED_IN,
        "Delta of choosing the threshold. Only dpsgd, m-quantile, Gaussian noise from devices and the test of "
        "--max-items spend it.",
        filled_in="1 / (10 users), at most 1e-6",
        symbol="D",
    )
    neighbours: Neighbours = field(
        default=Neighbours.ZERO_OUT,
        metadata=_about(
            "What the guarantee hides: whether any one user has data (zero-out), or what any one user's data is "
            "(replace-one), which needs more noise at the same epsilon; under both the number of users is public. Or "
            "whether any one user is in the data (add-or-remove-one), for tables with a number that --users gives.",
            choices=tuple(map(str, Neighbours)),
        ),
    )
    min_threshold: float = _field(
        1.0, "The smallest contribution bound to choose from, in counts of one user.", symbol="C"
    )
    max_threshold: float = _field(
        1500.0,
        "The largest contribution bound to choose from (C_m), in counts of one user. Decide it without looking at the "
        "data; too large a one costs accuracy.",
        symbol="CM",
    )
    candidates: int = _field(
        128,
        "The number of contribution bounds to choose from, from --min-threshold to --max-threshold in equal ratios.",
        symbol="K",
    )
    sparsity: int | None = _field(
        None,
        "Choosing the threshold over a closed domain with Gaussian noise: a user of more distinct items than this "
        "counts as one of this many. Private for any number; a small one makes the choice more exact.",
        filled_in="9, 16, ..., 64, more with more noise to choose by; all items if fewer or for the paper's selectors",
        symbol="S",
    )
    minimum_cohort: int = _field(
        1, "The number of users that have to answer; with fewer, nothing is released.", symbol="N"
    )
    release: str | None = _field(
        None,
        "How the histogram is released. Open domain: discover finds the items first and then counts them; "
        "truncated-laplace and laplace-threshold are one release of the items whose noisy count is above a bar. The "
        "paper's, for comparison: laplace-threshold-paper over an open domain; over a closed one classic-gaussian, "
        "Gaussian noise of the classic formula, for epsilon up to 1.",
        filled_in="discover for an open domain",
        symbol="NAME",
    )
    known_items: str | None = _field(
        None,
        "Open domain, discover: items that are public already, one a line. They are counted without being found "
        "first.",
        symbol="FILE",
    )
    debias: str | None = _field(
        None,
        "Clip each item of a closed domain by itself, with a share of the budget, and undo what clipping takes from "
        "counts that are Poisson distributed. For one item or few.",
        choices=("poisson",),
    )
    masking: str = _field(
        "none",
        "secagg: participants mask what they send, so that the server learns sums only, if it follows the protocol; "
        "secagg-signed: even if it does not.",
        choices=("none", "secagg", "secagg-signed"),
    )
    participants: int | None = _field(
        None, "With masking: the number of devices or nodes that take part, each with one user or many."
    )
    corrupt_share: float = _field(
        0.05,
        "With masking: the share of the participants, 0 to 0.3, that may work together with the server.",
        symbol="S",
    )
    dropout_share: float = _field(
        FILLED_IN,
        "With masking: the share of the participants, 0 to 0.3, that may vanish in a round. If more do, the round "
        "fails.",
        filled_in="0.1; for 4 to 9 participants (signed: 5 to 9) the share that lets one of them vanish",
        symbol="S",
    )
    noise_from: str = _field(
        "server",
        "Who adds the noise: the server, or with masking over a closed domain the devices, in shares, so that nobody "
        "sees an exact sum.",
        choices=("server", "devices"),
    )
    max_items: int = _field(
        16_384,
        "Open domain with masking: the number of distinct items, of all users together, that surely fit into the "
        f"discovery. Note: {TABLE_TRUST}.",
        symbol="N",
    )
    max_item_bytes: int = _field(
        32, "Open domain with masking: the length of the longest item's name, in bytes of UTF-8.", symbol="N"
    )
    window: str | None = _field(
        None,
        "Read only the rows of this window of time, in days of UTC: a week as in 2026-W47, a day, a month, a year, or "
        "two days with a slash between them, both included. Needs a time column; nodes name their own.",
        symbol="W",
    )


@dataclass(frozen=True, kw_only=True)
class Field:
    """A declared field. Its default is as in JSON: None where it may be left out, and where it has to be given."""

    name: str
    kind: type[int] | type[float] | type[str]
    default: int | float | str | None
    required: bool
    meaning: str
    choices: tuple[str, ...]
    filled_in: str
    symbol: str

    def plain(self, value: object) -> int | float | str | None:
        """The value as one of Python's own types, so that equal plans have equal digests; else an InvalidPlan."""
        if value is None and self.default is None and not self.required:
            return None
        try:
            return self._converted(value)
        except (TypeError, ValueError, OverflowError):
            wanted = {int: "a whole number", float: "a number", str: ", ".join(self.choices) or "text"}
            raise InvalidPlan(
                f"{self.name.replace('_', ' ')} is {value!r}", allowed=wanted[self.kind], code="bad-value"
            ) from None

    def _converted(self, value: Any) -> int | float | str:
        if isinstance(value, bool) or isinstance(value, str) != (self.kind is str):
            raise TypeError
        if self.choices and value not in self.choices:
            raise ValueError
        return operator.index(value) if self.kind is int else self.kind(value)


def _declared() -> dict[str, Field]:
    kinds: dict[Any, Any] = {int: int, int | None: int, float: float, float | None: float}
    types = get_type_hints(PlanFields)
    return {
        one.name: Field(
            name=one.name,
            kind=kinds.get(types[one.name], str),
            default=None if one.default is MISSING else getattr(one.default, "value", one.default),
            required=one.default is MISSING,
            **one.metadata,
        )
        for one in fields(PlanFields)
    }


FIELDS = _declared()
"""The fields by name, in the order of a plan's JSON."""


def described(docstring: str | None) -> str:
    """The docstring with what every field means."""
    lines = [f"{docstring}", "", "    Args:"]
    for one in FIELDS.values():
        default = f" None is {one.filled_in}." if one.filled_in else ""
        choices = f" One of {', '.join(one.choices)}." if one.choices else ""
        text = f"{one.name}: {one.meaning}{choices}{default}"
        lines.append(textwrap.fill(text, 120, initial_indent=" " * 8, subsequent_indent=" " * 12))
    return "\n".join([*lines, "    "])


class PlanSettings(TypedDict, total=False):
    """Every field of `Plan` but users and items, and epsilon, which those functions name themselves."""

    domain: str | None
    mechanism: str | None
    selector: str | None
    threshold: float | None
    delta: float | None
    epsilon_select: float
    delta_select: float | None
    neighbours: Neighbours | str
    min_threshold: float
    max_threshold: float
    candidates: int
    sparsity: int | None
    minimum_cohort: int
    release: str | None
    known_items: str | None
    debias: str | None
    masking: str
    participants: int | None
    corrupt_share: float
    dropout_share: float | None
    noise_from: str
    max_items: int
    max_item_bytes: int
    window: str | None
