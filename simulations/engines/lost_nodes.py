"""Virtual nodes do not vanish: in a simulation every loss beyond the modelled drop-outs is a failed round."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fedhist.protocol.errors import RoundFailed
from fedhist.protocol.events import WHOLE_ROUND
from fedhist.protocol.masking.wire import MaskingStage
from fedhist.server.collection import RoundReport

_RAISED = re.compile(r"<class '([\w.]+)(\(\w+\))?'>")
_NODE_CODE = "RayTaskError"


@dataclass
class Losses:
    """Why nodes gave no answer, as Flower tells it: the names of the errors, never their texts."""

    errors: set[str] = field(default_factory=set)

    def note(self, reason: str) -> None:
        """An error in place of an answer; the reason begins with the error's class."""
        named = _RAISED.match(reason)
        self.errors.add("an unknown error" if named is None else named.group(1).rpartition(".")[2])

    def advice(self) -> str:
        """The likely cause, and what to do about it."""
        died = sorted(self.errors - {_NODE_CODE})
        if died:
            return (
                f"A Ray worker process ended ({', '.join(died)}), most likely for want of memory, and Flower keeps "
                "sending nodes to it. Free some memory, use fewer --nodes, or use --engine in-process, which needs no "
                "Ray and gives the same release"
            )
        return (
            "The nodes' own code failed there. --engine in-process gives the same release, or shows the error"
        )


def check_nobody_lost(report: RoundReport, silent: Mapping[str, int], losses: Losses) -> None:
    """RoundFailed if nodes are missing beyond the modelled drop-outs.

    Args:
        report: the round's.
        silent: the number of modelled drop-outs, by stage of a masked round, where those of a stage that did not ask
            them are missing in the next one; else of all nodes that are modelled to add nothing, as of the whole round.
        losses: why nodes gave no answer.
    """
    if report.stages:
        lost, due = sum(report.faults.values()), 0
        for name in MaskingStage:
            due += silent.get(name, 0)
            if name in report.stages:
                modelled = min(report.stages[name].asked - report.stages[name].answered, due)
                lost, due = lost - modelled, due - modelled
    else:
        lost = report.nodes - report.answered - silent.get(WHOLE_ROUND, 0)
    if lost > 0:
        beyond = f" ({lost} missing beyond the modelled drop-outs)" if any(silent.values()) else ""
        raise RoundFailed(
            f"round {report.round.value}: {report.answered} of {report.nodes} nodes answered{beyond}; "
            f"nothing was released. {losses.advice()}",
            code="nodes-lost",
        )
