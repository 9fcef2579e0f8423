"""A run's charges as events of an accountant of Flower's, for a federation whose account is kept there.

Flower's events are Gaussian. Each charge becomes one that dominates it, so that the accountant's totals are upper
bounds. What fails with some probability instead has a delta that no Gaussian has: it is handed back, to be added.
"""

from __future__ import annotations

import math

from flwr.serverapp import GaussianPrivacyEvent, NeighboringRelation, PrivacyAccountant, PrivacyConfig

from fedhist.protocol.errors import BudgetExceeded, InvalidInput
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.calibration import is_number
from fedhist.protocol.privacy.campaign_loss import CampaignLoss
from fedhist.protocol.privacy.gaussian_bound import bounded_range_as_gaussian, pure_as_gaussian
from fedhist.protocol.privacy.ledger import (
    AlternativesLoss,
    BoundedRangeLoss,
    Charge,
    GaussianLoss,
    SampledGaussianLoss,
)
from fedhist.server.flower_accounting import NEIGHBOURS
from fedhist.server.steps import planned_charges


class AccountantJournal:
    """The journal of a `Ledger` that composes each charge into an accountant of Flower's: `composed_into` makes one.

    Args:
        accountant: Flower's, or any other of its protocol.
        delta: the most that charges may add beside the accountant's own delta.
    """

    def __init__(self, accountant: PrivacyAccountant, *, delta: float) -> None:
        self._accountant, self._allowed, self._delta = accountant, delta, 0.0

    @property
    def delta(self) -> float:
        """What to add to every delta that the accountant is asked about: Gaussian events have no such part."""
        return self._delta

    def __call__(self, charge: Charge) -> None:
        """Compose a charge before its noise is drawn, or raise and compose nothing."""
        self.check([charge])
        precision, delta = _as_gaussian(charge)
        if precision > 0:
            self._accountant.compose(_event(self._accountant.config, precision))
        self._delta += delta

    def check(self, charges: list[Charge]) -> None:
        """Refuse charges that the accountant's limit, or ours on delta, has no room for."""
        config = self._accountant.config
        for charge in charges:
            if charge.neighbours != NEIGHBOURS[config.neighboring_relation]:
                raise InvalidInput(
                    f"{charge.name} is private for {charge.neighbours} neighbours, and the accountant's relation is "
                    f"{config.neighboring_relation.value}",
                    allowed="one relation in an account, because costs under two of them can't be added",
                )
        parts = [_as_gaussian(charge) for charge in charges]
        delta = math.fsum([self._delta, *(part[1] for part in parts)])
        if delta > self._allowed * (1 + 1e-12):
            raise BudgetExceeded(
                f"these charges add delta {delta:g} that no Gaussian event has, and {self._allowed:g} is allowed. "
                "Nothing was spent. delta= allows more, or take a plan whose mechanisms are Gaussian or pure."
            )
        precision = math.fsum(part[0] for part in parts)
        if (
            config.max_epsilon is not None
            and precision > 0
            and self._accountant.would_exceed(_event(config, precision))
        ):
            raise BudgetExceeded(
                f"the accountant's max_epsilon {config.max_epsilon:g} would be passed. Nothing was spent."
            )


def composed_into(accountant: PrivacyAccountant, plan: Plan, *, delta: float = 0.0) -> AccountantJournal:
    """A journal that composes a run of this plan into an accountant of Flower's, once all of it was found to fit.

    Each charge becomes one Gaussian event that dominates it (see `gaussian_bound`), so that the accountant's totals
    are upper bounds. A Gaussian release is its event exactly. The noise multiplier is the standard deviation over the
    l2 sensitivity under the relation of both, as `RdpAccountant` has it for replace-one too; an accountant that
    doubles the sensitivity there counts too much, never too little. Samples of all clients are no samples.

    Args:
        accountant: what counts the training of the same federation.
        plan: what will be run.
        delta: the most that its charges may add beside the accountant's own delta; `journal.delta` is what they did.
    """
    if not is_number(delta) or not 0 <= delta < 1:
        raise InvalidInput(f"delta is {delta!r}", allowed="a number from 0 to below 1")
    config = accountant.config
    clients = config.population_size
    if config.neighboring_relation is NeighboringRelation.ADD_OR_REMOVE_ONE and plan.users > clients:
        raise InvalidInput(
            f"the plan is for up to {plan.users} users and the accountant counts {clients} clients",
            allowed="at most one user for each client under add-or-remove-one, because the accountant's number is then "
            "about clients, and a user of many in a client is not hidden by it",
            advice="give the training an accountant of our ledger instead: accounted(..., users_per_client='many')",
        )
    journal = AccountantJournal(accountant, delta=float(delta))
    journal.check(list(planned_charges(plan)))
    return journal


def _as_gaussian(charge: Charge) -> tuple[float, float]:
    """The sum of 1/z^2 of Gaussians that dominate a charge, and the delta that is left beside them."""
    if not charge.private:
        raise InvalidInput(f"{charge.name} is not private", allowed="private mechanisms")
    match charge.loss:
        case GaussianLoss(multiplier):
            slack = float(charge.parameters.get("slack", 0.0))
            return multiplier**-2 + (pure_as_gaussian(slack) ** -2 if slack > 0 else 0.0), 0.0
        case CampaignLoss() as campaign:
            # As if it were all there is of its campaign, which may only be too much.
            return campaign.precision_of(1), 0.0
        case SampledGaussianLoss(multiplier, _, releases, _):
            # Samples hide no less than none do: an outcome is a mixture over them, and delta is convex.
            return releases * multiplier**-2, 0.0
        case AlternativesLoss((way,), failure):
            precision = 0.0 if way.multiplier is None else way.multiplier**-2
            return precision + (0.0 if way.epsilon is None else pure_as_gaussian(way.epsilon) ** -2), failure
        case BoundedRangeLoss() if charge.epsilon > 0:
            return bounded_range_as_gaussian(charge.epsilon) ** -2, 0.0
        case _:
            # A mechanism of (epsilon, delta) fails with probability delta and is pure otherwise.
            return (pure_as_gaussian(charge.epsilon) ** -2 if charge.epsilon > 0 else 0.0), charge.delta


def _event(config: PrivacyConfig, precision: float) -> GaussianPrivacyEvent:
    """The event of a Gaussian over all clients."""
    return GaussianPrivacyEvent(
        noise_multiplier=(1 - 1e-12) / math.sqrt(precision),
        sample_size=config.population_size,
        population_size=config.population_size,
    )
