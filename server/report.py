"""A release as one JSON document, and what its reader should know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedhist.protocol.masking_terms import masking_graph
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Cost
from fedhist.protocol.table_terms import table_notes
from fedhist.server.release import Release


def release_document(
    release: Release,
    *,
    total: Cost,
    tight: Cost,
    seed: int | None,
    bytes_per_user: Mapping[str, int | None],
    seconds: Mapping[str, float],
    notes: Sequence[str],
) -> dict[str, Any]:
    """What was run, what came out, and what it cost; not the histogram, which has a file of its own.

    `bytes_per_user` is by round, None where a size would tell of data, see `length_tells`.
    """
    masked = {"masking": masking_document(release.plan)} if release.plan.is_masked else {}
    return masked | {
        "plan": release.plan.to_json(),
        "plan_digest": release.plan.digest.hex(),
        "seed": seed,
        "private": release.private,
        "simulation_only": release.seeded or not release.private,
        "threshold": release.threshold,
        "relative_loss": None,
        "standard_error": release.standard_error,
        "released_items": len(release.histogram),
        "ledger": [charge.to_json() for charge in release.charges],
        "total": total.to_json(),
        "tight": tight.to_json(),
        "bytes_per_user": dict(bytes_per_user),
        "seconds": dict(seconds),
        "notes": list(notes),
    }


def masking_document(plan: Plan) -> dict[str, int]:
    """The graph of a masked plan's participants, and how many of them have to stay."""
    links = masking_graph(plan)
    return {
        "participants": links.devices,
        "neighbours": links.neighbours,
        "share_threshold": links.threshold,
        "minimum_survivors": plan.minimum_survivors,
        "noise_shares": plan.noise_shares if plan.noise_by_devices else 0,
    }


def release_notes(release: Release) -> list[str]:
    """What the reader of a release should know, from the release alone."""
    plan = release.plan
    notes = []
    if not release.private:
        notes.append(f"not private: the selector {plan.selector} read the exact statistic")
    if release.seeded:
        notes.append("simulation only: whoever knows the seed can subtract the noise")
    if plan.delta and plan.delta > 1 / plan.users:
        notes.append(f"delta {plan.delta:g} is above 1/users; smaller is usual")
    if plan.selector != "fixed" and release.threshold <= plan.min_threshold:
        notes.append("the smallest threshold was chosen: the noise may outweigh the data at this budget")
    if plan.selector != "fixed" and release.threshold >= plan.max_threshold:
        notes.append("the largest threshold was chosen: a higher --max-threshold may lose less")
    return notes + table_notes(plan)
