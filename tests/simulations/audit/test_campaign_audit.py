"""The audit of campaigns passes, and catches a device that forgets what it has sent."""

from __future__ import annotations

from fedhist import Neighbours
from tests.support.api import Effort, Setting, adaptive_campaign

EFFORT = Effort(canaries=1, runs=1, slow_runs=120, gaussian_runs=1, masked_canaries=1)


def test_a_device_that_forgets_is_caught_and_one_that_remembers_passes() -> None:
    setting = Setting(EFFORT, 0.05, 3, "zero-out")
    assert adaptive_campaign(Neighbours.ZERO_OUT, setting).passed
    assert not adaptive_campaign(Neighbours.ZERO_OUT, setting, forgets=True).passed
