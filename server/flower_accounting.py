"""The training of a federation in the ledger of its histograms, through the accountant that Flower's strategies ask.

Flower counts *clients*, we count *users*, and the two agree only in part. Write C for the clipping norm of a training
and s for the standard deviation of the noise on the sum of its updates.

- *Each client is one user.* Both speak of the same person, under the same relation.
- *A client holds many users, zero-out.* Flower's number is about a whole client that is there or not: the sum moves
  by at most C. A user whose data becomes nothing does not remove the client. Its update becomes another one, clipped to
  C as well, so the sum moves by up to 2C. For users the noise multiplier is s/(2C), half of what Flower counts.
- *A client holds many users, replace-one.* A client whose user is replaced is a client that is replaced, and Flower's
  number holds for users as it is.

A guarantee for users never gives one for clients of many users: their data may all change at once.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    PrivacySpent,
    SamplingMethod,
)

from fedhist.protocol.errors import BudgetExceeded, InvalidInput
from fedhist.protocol.privacy.calibration import gaussian_epsilon, is_number
from fedhist.protocol.privacy.composition import delta_at, epsilon_at, loss_epsilon
from fedhist.protocol.privacy.concentrated import spending_of
from fedhist.protocol.privacy.ledger import (
    MAX_RELEASES,
    Charge,
    Cost,
    GaussianLoss,
    SampledGaussianLoss,
    check_same_neighbours,
)
from fedhist.server.ledger.budget_file import BudgetFile, OpenRun
from fedhist.server.ledger.charged_run import ending

UsersPerClient = Literal["one", "many"]

_METHOD = "fedhist-ledger"
_STATE_VERSION = 1
NEIGHBOURS = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: "zero-out",
    NeighboringRelation.REPLACE_ONE: "replace-one",
}
# Gaussian noise costs something, also where its epsilon rounds to 0.
_LEAST_EPSILON = 1e-12


@contextmanager
def accounted(
    ledger: Path,
    config: PrivacyConfig,
    event: GaussianPrivacyEvent,
    *,
    rounds: int,
    users_per_client: UsersPerClient,
    label: str,
) -> Iterator[LedgerAccountant]:
    """An accountant for a strategy of Flower's that charges a training to our ledger, beside the histograms.

    The whole training is reserved now, so that one that does not fit is refused before its first round. It is charged
    as one entry before its first release, because that many Gaussian releases together cost far less than one by one.
    A training that ends early has spent it all: when it ended may depend on what it showed.

    Args:
        ledger: the file, made if missing. `fedhist ledger show` lists the training.
        config: Flower's. The training costs some epsilon at `target_delta`. `max_epsilon` limits the tight total of the
            whole file at that delta; the limit of the file holds beside it.
        event: what one round releases. Rounds with more noise are accepted too. Its noise multiplier is over what one
            client moves the sum by: the clipping norm under add-or-remove-one, and twice the norm under replace-one.
        rounds: the most releases that there will be.
        users_per_client: "one" if each client is one user, else "many".
        label: what the user calls the data.
    """
    charge = training_charge(config, event, rounds=rounds, users_per_client=users_per_client)
    budget = BudgetFile.open(ledger, create=True)
    check_same_neighbours(charge, [entry for run in budget.runs() for entry in run.charges[:1]][:1])
    if config.max_epsilon is not None:
        total = _epsilon(budget, config.target_delta, planned=charge)
        if total > config.max_epsilon:
            raise BudgetExceeded(
                f"the training would take {budget.path} to epsilon {total:.4g} at delta {config.target_delta:g}, and "
                f"max_epsilon is {config.max_epsilon:g}. Nothing was spent. More noise or fewer rounds cost less."
            )
    plan = {"kind": "flower-training", **charge.parameters}
    digest = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()
    entry = budget.begin(digest, plan, spending_of(charge), label, datetime.now(UTC))
    with ending(entry):
        yield LedgerAccountant(budget, entry, charge, config=config, event=event, rounds=rounds)


def training_charge(
    config: PrivacyConfig, event: GaussianPrivacyEvent, *, rounds: int, users_per_client: UsersPerClient
) -> Charge:
    """What releases of a training cost together, for each user.

    The noise multiplier of `event` is the standard deviation over what one client moves the sum by, under the
    relation of `config`. Why it is halved for clients of many users under zero-out stands at the top of this
    module; with samples drawn independently, the update of a sampled client is then one that is replaced.
    """
    if users_per_client not in get_args(UsersPerClient):
        raise InvalidInput(f"users_per_client is {users_per_client!r}", allowed="'one' or 'many'")
    if not _is_count(rounds) or rounds > MAX_RELEASES:
        raise InvalidInput(f"the number of rounds is {rounds!r}", allowed=f"1 to {MAX_RELEASES}")
    _check_population(config, event)
    neighbours = NEIGHBOURS[config.neighboring_relation]
    replaced = users_per_client == "many" and neighbours == "zero-out"
    multiplier = event.noise_multiplier / 2 if replaced else event.noise_multiplier
    share = event.sample_size / event.population_size
    loss: GaussianLoss | SampledGaussianLoss
    if config.sampling_method is SamplingMethod.NO_AMPLIFICATION or share == 1:
        loss = GaussianLoss(multiplier / math.sqrt(rounds) * (1 - 1e-15))
        epsilon = gaussian_epsilon(loss.multiplier, config.target_delta)
    else:
        change = "replace-one" if replaced else neighbours
        loss = SampledGaussianLoss(multiplier, share, rounds, change)
        epsilon = loss_epsilon(loss, config.target_delta)
    return Charge(
        round="train",
        name="gaussian" if isinstance(loss, GaussianLoss) else "sampled-gaussian",
        parameters={
            "noise_multiplier": event.noise_multiplier,
            "releases": rounds,
            "sample_size": event.sample_size,
            "population_size": event.population_size,
            "sampling": config.sampling_method.value,
            "users_per_client": users_per_client,
            "sensitivity_is": "in clipping norms" if neighbours == "zero-out" else "in units of the noise",
        },
        sensitivity=2.0 if replaced else 1.0,
        norm="l2",
        neighbours=neighbours,
        epsilon=max(epsilon, _LEAST_EPSILON),
        delta=config.target_delta,
        loss=loss,
    )


class LedgerAccountant:
    """A `PrivacyAccountant` of Flower's whose account is our ledger: `accounted` makes one.

    What it reports is the tight total of the whole file, with what others have open. All releases of the training count
    from the first one on.
    """

    def __init__(
        self,
        budget: BudgetFile,
        entry: OpenRun,
        charge: Charge,
        *,
        config: PrivacyConfig,
        event: GaussianPrivacyEvent,
        rounds: int,
    ) -> None:
        self._budget, self._entry, self._charge = budget, entry, charge
        self._own_config, self._event, self._rounds = config, event, rounds
        self._releases = self._earlier = 0

    @property
    def config(self) -> PrivacyConfig:
        """The configuration. Without a `max_epsilon`, that of the file: strategies ask only where there is one."""
        limit = self._budget.limit
        if self._own_config.max_epsilon is not None or limit is None or limit.epsilon == 0:
            return self._own_config
        return replace(self._own_config, max_epsilon=limit.epsilon)

    @property
    def num_releases(self) -> int:
        """The releases of this training, with those of a state that was loaded."""
        return self._earlier + self._releases

    def compose(self, event: GaussianPrivacyEvent, count: int = 1) -> None:
        """Count releases, and charge them all before the first one; when it raises, nothing may be released."""
        self._check(event, count)
        if self._releases + count > self._rounds:
            raise BudgetExceeded(
                f"the training was charged for {self._rounds} releases, has made {self._releases} and asks for another "
                f"{count}. Nothing was charged. Reserve more rounds when it begins."
            )
        if self._releases == 0:
            self._entry.record(self._charge)
        self._releases += count

    def get_epsilon(self, delta: float) -> float:
        """The epsilon of the whole file at this delta."""
        if not is_number(delta) or not 0 < delta < 1:
            raise InvalidInput(f"delta is {delta!r}", allowed="a number strictly between 0 and 1")
        return _epsilon(self._budget, delta, own=self._entry.id)

    def get_delta(self, epsilon: float) -> float:
        """The delta of the whole file at this epsilon."""
        if not is_number(epsilon) or not 0 <= epsilon < math.inf:
            raise InvalidInput(f"epsilon is {epsilon!r}", allowed="a finite number, 0 or more")
        charges, held = _account(self._budget, own=self._entry.id)
        if held.epsilon > epsilon:
            return 1.0
        return min(delta_at(charges, epsilon - held.epsilon) + held.delta, 1.0)

    def get_privacy_spent(self, delta: float | None = None) -> PrivacySpent:
        """The epsilon of the whole file, at `target_delta` where no delta is given."""
        at = self._own_config.target_delta if delta is None else delta
        return PrivacySpent(self.get_epsilon(at), at, self.num_releases, _METHOD)

    def would_exceed(
        self, event: GaussianPrivacyEvent, max_epsilon: float | None = None, count: int = 1
    ) -> bool:
        """Whether releases pass what was reserved, or an epsilon that the caller or the configuration names.

        The limit of the file can't be passed: all of the training was reserved under it.
        """
        self._check(event, count)
        if self._releases + count > self._rounds:
            return True
        limit = self._own_config.max_epsilon if max_epsilon is None else max_epsilon
        if limit is None:
            return False
        if not is_number(limit) or not 0 < limit < math.inf:
            raise InvalidInput(f"max_epsilon is {limit!r}", allowed="a finite number above 0")
        planned = None if self._releases else self._charge
        return (
            _epsilon(self._budget, self._own_config.target_delta, own=self._entry.id, planned=planned) > limit
        )

    def state_dict(self) -> dict[str, object]:
        """Which training of the file this is, and how far it got. The account itself is the file."""
        return {
            "schema_version": _STATE_VERSION,
            "backend": _METHOD,
            "config": _plain_config(self._own_config),
            "run": self._entry.id,
            "plan_digest": self._entry.plan_hash,
            "num_releases": self.num_releases,
        }

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Go on after a training of the same file that was interrupted.

        Its releases are counted by `num_releases` from now on, and it stays charged. Rounds that it was charged for and
        did not make are not handed on: nobody can tell whether the last one was seen before the process died. So this
        training pays for its own.
        """
        releases = _checked_state(state, self._own_config)
        runs = {run.id: run for run in self._budget.runs()}
        number = state.get("run")
        found = runs.get(number) if isinstance(number, int) else None
        if found is None or found.plan_hash != state.get("plan_digest") or (releases and not found.charges):
            raise InvalidInput(
                f"{self._budget.path} does not hold the training of this state",
                allowed="a state of a training that was charged to this ledger",
            )
        if self._releases:
            raise InvalidInput(
                f"this training has made {self._releases} releases", allowed="a state before its first"
            )
        self._earlier = releases

    def _check(self, event: GaussianPrivacyEvent, count: int) -> None:
        if not _is_count(count):
            raise InvalidInput(f"the count is {count!r}", allowed="a whole number, 1 or more")
        _check_population(self._own_config, event)
        amplified = self._own_config.sampling_method is not SamplingMethod.NO_AMPLIFICATION
        if event.noise_multiplier < self._event.noise_multiplier or (
            amplified and event.sample_size > self._event.sample_size
        ):
            raise InvalidInput(
                f"a release has noise multiplier {event.noise_multiplier:g} and {event.sample_size} clients, and the "
                f"training was reserved for {self._event.noise_multiplier:g} and {self._event.sample_size}",
                allowed="as much noise and as few clients as were reserved, or more noise and fewer clients",
            )


def _account(budget: BudgetFile, *, own: int | None) -> tuple[list[Charge], Cost]:
    """All charges of a file, in their order, and what open runs other than `own` hold beyond theirs.

    Runs are read first: what one of them charges meanwhile counts twice, and never not at all.
    """
    runs = budget.runs()
    held = [run for run in runs if run.status == "open" and run.id != own]
    left = Cost(
        math.fsum(max(run.reserved.epsilon - run.charged.epsilon, 0.0) for run in held),
        math.fsum(max(run.reserved.delta - run.charged.delta, 0.0) for run in held),
    )
    return budget.charges(), left


def _epsilon(
    budget: BudgetFile, delta: float, *, own: int | None = None, planned: Charge | None = None
) -> float:
    """The tight total of a file at this delta, with a charge that is planned; infinite if there is none."""
    charges, held = _account(budget, own=own)
    if planned is not None:
        charges.append(planned)
    if not charges and held == Cost(0.0, 0.0):
        return 0.0
    if held.delta >= delta:
        return math.inf
    return epsilon_at(charges, delta - held.delta) + held.epsilon


def _check_population(config: PrivacyConfig, event: GaussianPrivacyEvent) -> None:
    if event.population_size != config.population_size:
        raise InvalidInput(
            f"an event is of {event.population_size} clients and the configuration of {config.population_size}",
            allowed="one population_size",
        )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _plain_config(config: PrivacyConfig) -> dict[str, Any]:
    return asdict(config) | {
        "neighboring_relation": config.neighboring_relation.value,
        "sampling_method": config.sampling_method.value,
    }


def _checked_state(state: Mapping[str, object], config: PrivacyConfig) -> int:
    """The number of releases of a state that this accountant can go on from."""
    releases = state.get("num_releases")
    whole = _is_count(releases) or (releases == 0 and isinstance(releases, int))
    if state.get("schema_version") != _STATE_VERSION or state.get("backend") != _METHOD or not whole:
        raise InvalidInput(
            "the state can't be read", allowed=f"what state_dict() of a {_METHOD} accountant returned"
        )
    if state.get("config") != _plain_config(config):
        raise InvalidInput(
            "the state is of another configuration", allowed="the PrivacyConfig of this accountant"
        )
    return int(releases)  # type: ignore[call-overload, no-any-return]  # checked above
