"""What data is given as: a path, a matrix, a population; anything else is taken for a data frame."""

from __future__ import annotations

import os
import sys
from typing import TypeGuard

from fedhist.protocol.histograms import Population


def is_path(data: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether it names a file, a folder or a pattern."""
    return isinstance(data, str | os.PathLike)


def is_matrix(data: object) -> bool:
    """Whether it is a sparse matrix of scipy."""
    # What made a matrix has imported scipy's module. Nobody else waits for it.
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(data))


def is_population(data: object) -> TypeGuard[Population]:
    """Whether it has users and shards of its own."""
    return all(hasattr(data, name) for name in ("users", "domain_size", "shards"))
