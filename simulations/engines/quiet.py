"""Flower and Ray without telemetry, update checks or open ports, in everything that we start."""

from __future__ import annotations

import os
import sys

from fedhist.protocol.errors import InvalidInput

LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Despite its name, this makes Ray bind to the loopback interface.
    LOOPBACK: "0",
    # A task that runs out of memory is not tried for ever.
    "RAY_task_oom_retries": "5",
    # Ray prints on our standard output what it has to tell of lost machines. Lines that fit this are left out: all.
    "RAY_DEDUP_LOGS": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    # Ray would warn that a later version leaves this variable alone when a task asks for no accelerator.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""What a process that runs Flower or Ray for us has in its environment."""


def quieten(*, loopback: bool = True) -> None:
    """Set the environment of this process, before Flower is imported: Flower reads it then, and only then.

    Args:
        loopback: bind Ray to the loopback interface. A process that joins a cluster has to be reached by the others.
    """
    name = "FLWR_TELEMETRY_ENABLED"
    if "flwr" in sys.modules and os.environ.get(name) != ENVIRONMENT[name]:
        raise InvalidInput(
            "Flower was imported with its telemetry on, which can no longer be switched off",
            allowed=f"{name}=0 in the environment before flwr is imported",
            code="telemetry-on",
        )
    if loopback and "ray" in sys.modules and os.environ.get(LOOPBACK) != ENVIRONMENT[LOOPBACK]:
        raise InvalidInput(
            "Ray was imported without being bound to the loopback interface, which can no longer be changed",
            allowed=f"{LOOPBACK}=0 in the environment before ray is imported",
            code="ray-not-on-loopback",
        )
    os.environ.update({key: value for key, value in ENVIRONMENT.items() if loopback or key != LOOPBACK})
