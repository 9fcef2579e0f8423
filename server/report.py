"""A release as one JSON document, and what its reader should know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedhist.display.text import is_formula, is_hidden
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.terms import masking_graph
from fedhist.protocol.privacy.ledger import Cost, Ledger
from fedhist.protocol.rounds import Labels, Round
from fedhist.server.advice import plan_notes, release_advice
from fedhist.server.collection import RoundReport
from fedhist.server.estimates import LEVEL
from fedhist.server.releases.contract import Release
from fedhist.server.steps import method_of


def release_document(
    release: Release,
    *,
    total: Cost,
    tight: Cost,
    seed: int | None,
    bytes_per_user: Mapping[str, int | None],
    seconds: Mapping[str, float | None],
    notes: Sequence[str],
    users: Mapping[str, int],
) -> dict[str, Any]:
    """What was run, what came out, and what it cost; not the histogram, which has a file of its own.

    `bytes_per_user` is by round, None where a size would tell of data, see `length_tells`; `seconds` is by phase,
    None where a time would, which every time does. `users` is the number of users whose answers are in the sum, by
    round: the plan's number is an upper limit.
    """
    masked = {"masking": masking_document(release.plan)} if release.plan.is_masked else {}
    return masked | {
        "plan": release.plan.to_json(),
        "plan_digest": release.plan.digest.hex(),
        "seed": seed,
        "private": release.private,
        "simulation_only": not release.private,
        "users_answered": dict(users),
        "users_public": not release.plan.hides_users,
        "threshold": release.threshold,
        "discovery_share": release.discovery_share,
        "mechanism": release.mechanism or release.plan.mechanism,
        "relative_loss": None,
        "standard_error": release.standard_error,
        "at_least_level": LEVEL,
        "significant_items": int((release.at_least > 0).sum()),
        "which_to_use": which_to_use(release),
        "released_items": len(release.histogram),
        "ledger": [charge.to_json() for charge in release.charges],
        "total": total.to_json(),
        "tight": tight.to_json(),
        "bytes_per_user": dict(bytes_per_user),
        "seconds": dict(seconds),
        "notes": list(notes),
    }


def which_to_use(release: Release) -> str:
    """Which of a release's numbers to use, in one sentence."""
    return (
        f"{_value_or_estimate(release)}; at_least is a lower limit of the exact count ({100 * LEVEL:.0f} %)"
    )


def _value_or_estimate(release: Release) -> str:
    if release.item_release is not None:
        return "use value, which is debiased; estimate is the same"
    if release.bar is not None:
        return "use value; estimate is the same"
    return "use estimate for single items and value for sums of many items or of several releases"


def masking_document(plan: Plan) -> dict[str, int]:
    """The graph of a masked plan's participants, and the number of them that must stay to the end."""
    links = masking_graph(plan)
    return {
        "participants": links.devices,
        "neighbours": links.neighbours,
        "share_threshold": links.threshold,
        "minimum_survivors": plan.minimum_survivors,
        "noise_shares": plan.noise_shares if plan.noise_by_devices else 0,
    }


def why_not_private(release: Release) -> list[str]:
    """The reasons why a release is not private, a sentence each; none for a private one."""
    reasons = []
    for charge in release.charges:
        if not charge.private:
            read = "statistic" if charge.round == Round.SELECT else "sum"
            reasons.append(f"not private: the {method_of(charge)} read the exact {read}")
    reasons += release.why_never_private
    return reasons if reasons or release.private else ["not private: its release rule says so"]


def name_notes(release: Release, labels: Labels | None) -> list[str]:
    """Notes on the names in histogram.csv, which stand there as they were written.

    Made from the released names or the public list alone.
    """
    named = release.names if labels is None else release.named(labels).names
    if isinstance(named, range):
        return []
    formulas = sum(map(is_formula, named))
    hidden = sum(map(is_hidden, named))
    notes = []
    if formulas:
        notes.append(
            f"{formulas:,} of the names in histogram.csv would be formulas in a spreadsheet: import that column as text"
        )
    if hidden:
        notes.append(
            f"{hidden:,} of the names in histogram.csv have invisible characters, which may be meant for a terminal: "
            "do not print the file on one"
        )
    return notes


def cohort_notes(plan: Plan, users: Mapping[str, int]) -> list[str]:
    """Notes for the reader when fewer users answered than the plan is for.

    Args:
        plan: what was run.
        users: the number of users whose answers are in the sum, by round.
    """
    effects = {
        Round.DISCOVER.value: "items were found among those of these alone",
        Round.SELECT.value: "the threshold was chosen from those alone",
        Round.RELEASE.value: "the histogram is of those alone",
    }
    return [
        f"round {name}: {answered:,} of the plan's {plan.users:,} users answered; {effects[name]}"
        for name, answered in users.items()
        if answered < plan.users
    ]


def release_notes(release: Release) -> list[str]:
    """Notes for the reader of a release, from the release alone."""
    return [*why_not_private(release), *release_advice(release), *plan_notes(release.plan)]


def grid_document(
    release: Release,
    ledger: Ledger,
    reports: Mapping[Round, RoundReport],
    labels: Labels | None,
    *,
    seed: int | None,
) -> dict[str, Any]:
    """The result of a run over a Grid, with what each round reported and no times."""
    users = users_answered(reports)
    document = release_document(
        release,
        total=ledger.basic(),
        tight=ledger.tight(),
        seed=seed,
        bytes_per_user={
            r.value: None if report.size is None else round(report.size / report.users)
            for r, report in reports.items()
        },
        seconds=dict.fromkeys(r.value for r in reports),
        notes=[
            *cohort_notes(release.plan, users),
            *release_notes(release),
            *name_notes(release, labels),
        ],
        users=users,
    )
    return document | {"rounds": {r.value: report.to_json(truth=False) for r, report in reports.items()}}


def users_answered(reports: Mapping[Round, RoundReport]) -> dict[str, int]:
    """The number of users whose answers are in the sum, by round."""
    return {r.value: report.users for r, report in reports.items()}
