"""The nodes' users, keys and the plans of the whole system's scenarios; what is secret in them can be recognised."""

from __future__ import annotations

import numpy as np

from fedhist import Plan, SparsePopulation
from tests.builders import population_of
from tests.support.api import Identity

NODES = 7
USERS_EACH = 4
FIRST = 100
SEED = 11
LABELS = [f"marker-ZQX-{number}" for number in range(4)]
COUNT = 7654321
SECRETS = [bytes([0xA0 + number]) * 32 for number in range(NODES)]

_CLOSED = {"users": 40, "items": 4, "candidates": 8, "max_threshold": 60, "epsilon": 6.0}
_FOUND = {"users": 40, "domain": "open", "candidates": 8, "max_threshold": 60, "epsilon": 9.0}
_MASKED = {"masking": "secagg", "participants": NODES, "dropout_share": 0.3}
PLANS = {
    "closed": Plan(**_CLOSED, minimum_cohort=6 * USERS_EACH),
    "fixed": Plan(**_CLOSED, selector="fixed", threshold=9.0, minimum_cohort=5 * USERS_EACH),
    "laplace": Plan(**_CLOSED, mechanism="laplace"),
    "debiased": Plan(**_CLOSED, debias="poisson"),
    "open": Plan(**_FOUND | {"release": "truncated-laplace", "epsilon": 6.0}),
    "masked": Plan(**_CLOSED, **_MASKED),
    "signed": Plan(**_CLOSED, **(_MASKED | {"masking": "secagg-signed", "dropout_share": 0.15})),
    "noisy": Plan(**_CLOSED, **(_MASKED | {"dropout_share": 0.15}), noise_from="devices"),
    "discovered": Plan(**_FOUND, known_items=LABELS[0]),
    "masked discovered": Plan(**_FOUND, **_MASKED, max_items=9, max_item_bytes=16),
    "noisy discovered": Plan(
        **_FOUND,
        **(_MASKED | {"dropout_share": 0.15}),
        noise_from="devices",
        max_items=9,
        max_item_bytes=16,
    ),
}
"""One plan of each kind."""


def whole() -> SparsePopulation:
    """Users whose items and one of whose counts can be recognised wherever they turn up."""

    counts = np.random.default_rng(3).poisson(2.0, (NODES * USERS_EACH, 4)) * 3
    counts[2, 1] = COUNT
    return population_of(counts, labels=LABELS)


_WHOLE = whole()


def part(place: int) -> SparsePopulation:
    """The users of one node."""
    rows = _WHOLE.histograms.rows(place * USERS_EACH, (place + 1) * USERS_EACH)
    return SparsePopulation(rows, labels=LABELS)


def public_line(secret: bytes) -> bytes:
    """A line of a directory of keys."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = Ed25519PublicKey.from_public_bytes(Identity(secret, {}).public)
    return public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
