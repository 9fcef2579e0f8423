"""The stages of a masked sum, in their order: the one vocabulary of servers, devices, simulations, audits and traces.

A stage is named after what devices do in it. Each is one exchange: the server's messages, and the devices' answers.
"""

from __future__ import annotations

from enum import StrEnum


class MaskingStage(StrEnum):
    """One exchange of messages between the server and the devices."""

    ADVERTISING = "advertising"
    SHARING = "sharing"
    CHECKING = "checking"
    MASKING = "masking"
    CONFIRMING = "confirming"
    """In signed mode only."""
    UNMASKING = "unmasking"
