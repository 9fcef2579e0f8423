"""Audits of answers over Flower: nobody is counted twice, and a device that is asked again gives no second view.

The server's transport and the devices' handlers, joined by a Grid in this process. What is compared are exact sums, so
that no noise hides an answer too many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedhist.client.app import mount, recall
from fedhist.client.policy import round_cost
from fedhist.protocol.errors import RoundFailed
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Cost
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import ReleaseRequest, Request, Round, SelectRequest, Total
from fedhist.server.app import GridTransport
from fedhist.simulations.audit.findings import Check, Finding, Setting, exact
from fedhist.simulations.audit.worlds import Crafted, crafted

NODES = 6
_ITEMS = 4
_NAMES = range(10, 10 + NODES)
_FLOWER_RUN = 1
_SERVER = 1


class Cohort(Grid):
    """Nodes of this process with one user each; whoever is in `twice` has every answer delivered twice."""

    def __init__(self, source: Source, twice: Sequence[int] = ()) -> None:
        self.twice = twice
        self.contexts = {
            node: Context(_FLOWER_RUN, node, {"partition-id": node}, RecordDict(), {}) for node in _NAMES
        }
        self._apps = {
            node: mount(ClientApp(), lambda context: _user(context.node_id), source=lambda _: source)
            for node in _NAMES
        }

    def get_node_ids(self) -> Iterable[int]:
        """All of them, always."""
        return list(self._apps)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Deliver at once."""
        return [reply for message in messages for reply in self._replies(message)]

    def _replies(self, message: Message) -> Iterator[Message]:
        node = message.metadata.dst_node_id
        # Flower's own grids number a message when they send it.
        message.metadata.__dict__["_message_id"] = f"{id(self)}/{id(message)}"
        reply = self._apps[node](deepcopy(message), self.contexts[node])
        yield reply
        if node in self.twice:
            yield deepcopy(reply)

    def set_run(self, run: Any) -> None:
        """Not needed: nobody else shares this Grid."""

    @property
    def run(self) -> Any:
        """There is no Flower run behind it."""
        return None

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        """The old way to make a message; the transport makes its own."""
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """The transport sends and receives in one call."""
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The transport sends and receives in one call."""
        raise NotImplementedError


@contextmanager
def _in_a_server() -> Iterator[None]:
    """Flower's messages are made by a process that knows which task it is; afterwards all is as before."""
    before = TaskIdentity._run_id, TaskIdentity._node_id, TaskIdentity._task_id
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = _FLOWER_RUN, _SERVER, _SERVER
    try:
        yield
    finally:
        TaskIdentity._run_id, TaskIdentity._node_id, TaskIdentity._task_id = before


def _user(node: int) -> Crafted:
    """A user whose counts no other subset of the users adds up to."""
    place = _NAMES.index(node)
    return crafted([[(place % _ITEMS, 1 << place)]], _ITEMS)


def _plans() -> dict[str, Plan]:
    """Room for twice the users, so that one who is counted twice is in the sum and not refused."""
    common: dict[str, Any] = {
        "users": 2 * NODES, "epsilon": 1.0, "epsilon_select": 1.0, "candidates": 16, "max_threshold": 64.0,
    }  # fmt: skip
    masked: dict[str, Any] = {
        "masking": "secagg", "participants": NODES, "corrupt_share": 0.0, "dropout_share": 0.0,
    }  # fmt: skip
    return {
        "closed": Plan(items=_ITEMS, mechanism="laplace", **common),
        "open": Plan(domain="open", delta=0.01, **common),
        "masked": Plan(items=_ITEMS, mechanism="laplace", **common, **masked),
        "masked, noise from devices": Plan(
            items=_ITEMS, mechanism="laplace", noise_from="devices", **common, **masked
        ),
    }


def _requests(plan: Plan) -> tuple[Request, Request]:
    return SelectRequest(plan), ReleaseRequest(plan, plan.at_steps(plan.candidate_steps[-1]))


@_in_a_server()
def counted_once(setting: Setting) -> Finding:
    """Where some nodes' answers arrive twice, both rounds have the sums of the same nodes answering once.

    Noise from devices is left out: there two sums are never alike.
    """
    wrong = cases = 0
    for name, plan in _plans().items():
        if plan.noise_by_devices:
            continue
        for twice in ((_NAMES[0],), (_NAMES[-1],), tuple(_NAMES)):
            source = setting.auditor().fork(name, *twice)
            once, again = (GridTransport(Cohort(source, nodes), timeout=1.0) for nodes in ((), twice))
            for request in _requests(plan):
                cases += 1
                wrong += not _stays(once.total(request), again, request)
    return exact(
        setting.name, passed=wrong == 0, detail=f"{wrong} of {cases} sums with repeated answers wrong"
    )


@_in_a_server()
def one_view(setting: Setting) -> Finding:
    """A server that asks again within a run learns nothing that it was not told, and no device is charged less.

    Asked for the same again, a device may repeat what it said, unless it was masked: two masked answers would have two
    shares of noise. Asked for another threshold or by another plan it must not answer.
    """
    wrong = cases = 0
    for name, plan in _plans().items():
        source = setting.auditor().fork(name)
        cohort = Cohort(source)
        transport = GridTransport(cohort, timeout=1.0)
        other = replace(plan, epsilon=plan.epsilon / 2)
        for request, changed in zip(_requests(plan), _requests(other), strict=True):
            told = transport.total(request)
            second = _total_or_none(transport, request)
            cases += 2
            wrong += second is not None and (plan.is_masked or not _alike(told, second))
            wrong += _total_or_none(transport, changed) is not None
        lower = ReleaseRequest(plan, plan.at_steps(plan.candidate_steps[0]))
        cases += 1 + NODES
        wrong += _total_or_none(transport, lower) is not None
        due = round_cost(plan, Round.SELECT) + round_cost(plan, Round.RELEASE)
        wrong += sum(_less(recall(context).spent, due) for context in cohort.contexts.values())
    return exact(
        setting.name, passed=wrong == 0, detail=f"{wrong} of {cases} second answers or missing charges"
    )


def _stays(told: Total, transport: GridTransport, request: Request) -> bool:
    """Whether the transport has the same sum; one that breaks on repeated answers has none."""
    try:
        return _alike(told, transport.total(request))
    except Exception:  # whatever it was, the sum did not come
        return False


def _total_or_none(transport: GridTransport, request: Request) -> Total | None:
    try:
        return transport.total(request)
    except RoundFailed:
        return None


def _less(spent: Cost, due: Cost) -> bool:
    return spent.epsilon < due.epsilon or spent.delta < due.delta


def _alike(first: Total, second: Total) -> bool:
    """Whether two sums are the same, item by item; over an open domain nodes' order decides the numbers."""
    if first.keyed is None or second.keyed is None:
        same_keys = first.keyed is second.keyed
    else:
        same_keys = (
            list(first.labels or ()) == list(second.labels or ())
            and np.array_equal(first.keyed.keys, second.keyed.keys)
            and np.array_equal(first.keyed.values, second.keyed.values)
        )
    return same_keys and first.users == second.users and np.array_equal(first.values, second.values)


CHECKS = (Check("answers, counted once", counted_once), Check("answers, one view", one_view))
