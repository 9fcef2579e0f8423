"""Contracts: checks that every measurement, selector and release rule must pass.

For people who write one, in this project or outside of it. They need neither pytest nor a registry; `check_plugin`
takes a file, or whatever was registered:

    >>> from fedhist.testing import check_selector
    >>> from fedhist.server.selection.quantile import Quantile
    >>> check_selector(Quantile())  # doctest: +SKIP

The first check that fails raises an AssertionError with its name and a sentence. A contract's table (`SELECTOR.checks`)
has them by name, to run each as a test of its own.
"""

from __future__ import annotations

from fedhist.testing.contract import PLANS, Contract
from fedhist.testing.measurements import MEASUREMENT, check_measurement
from fedhist.testing.plugins import check_plugin
from fedhist.testing.releases import RELEASE_RULE, check_release_rule
from fedhist.testing.selectors import SELECTOR, check_selector

__all__ = [
    "MEASUREMENT",
    "PLANS",
    "RELEASE_RULE",
    "SELECTOR",
    "Contract",
    "check_measurement",
    "check_plugin",
    "check_release_rule",
    "check_selector",
]
