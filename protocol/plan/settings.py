"""The fields of a plan as keyword arguments, for functions that fill in users and items from data.

Type checkers and notebooks complete them; a test compares them with `fields`. None is the field's default.
"""

from __future__ import annotations

from typing import TypedDict

from fedhist.protocol.privacy.neighbours import Neighbours


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
