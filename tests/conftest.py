"""Shared builders: small populations written as plain lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import settings

from fedhist.protocol.histograms import Histograms

# A busy machine is no failure: no test has a limit of milliseconds.
settings.register_profile("fedhist", deadline=None)
settings.load_profile("fedhist")


def histograms_of(rows: Sequence[Sequence[int]], *, first_user: int = 0) -> Histograms:
    """Dense rows as Histograms, explicit zeros left out."""
    dense = np.asarray(rows, dtype=np.int64).reshape(len(rows), -1)
    kept = dense > 0
    return Histograms(
        offsets=np.concatenate([[0], np.cumsum(kept.sum(axis=1))]),
        items=np.nonzero(kept)[1],
        counts=dense[kept],
        domain_size=dense.shape[1],
        first_user=first_user,
    )


@pytest.fixture(scope="session")
def make_histograms() -> Callable[..., Histograms]:
    return histograms_of
