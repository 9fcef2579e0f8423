"""`device-noise`: the noise is in the sum already, in shares of the devices. Closed domains under masks."""

from __future__ import annotations

import math
from functools import partial

from fedhist.protocol.grid import Threshold
from fedhist.protocol.measurements.base import Total
from fedhist.protocol.measurements.sums import ClippedSum
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.terms import release_share
from fedhist.protocol.privacy.ledger import Charge, Ledger
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.estimates import law_of_shares
from fedhist.server.releases.central_noise import in_counts, inferred, noise_warnings
from fedhist.server.releases.contract import Release, ReleaseRule, RuleWords
from fedhist.server.selection.contract import Selection
from fedhist.server.share_charges import release_shares_charge


class DeviceNoise(ReleaseRule):
    """The sum as it came, with the error of the shares that it holds. Charged before it is asked for."""

    name = "device-noise"
    measures = ClippedSum.name

    def fits(self, plan: Plan) -> bool:
        """Whole histograms of a closed domain, noised by the devices."""
        return super().fits(plan) and ClippedSum.noised(plan)

    def words(self, plan: Plan) -> RuleWords:
        """Shares."""
        detail = "The noise is in the sum already: every participant added a share before it masked."
        return RuleWords("reads the noisy sum", detail, plan.mechanism)

    def warnings(self, plan: Plan) -> dict[str, str]:
        """Noise above a typical item."""
        return noise_warnings(plan, plan.closed.items)

    def charges(self, plan: Plan, threshold: Threshold | None) -> tuple[Charge, ...]:
        """One mechanism on the whole vector."""
        return (release_shares_charge(plan, threshold),)

    def build(
        self, plan: Plan, selection: Selection, reading: Total, *, ledger: Ledger, source: Source
    ) -> Release:
        """Scale."""
        threshold = selection.threshold
        share = release_share(plan, threshold.steps)
        return Release(
            plan=plan,
            threshold=threshold.value,
            histogram=in_counts(plan, reading.values),
            standard_error=math.ldexp(share.deviation(reading.shares), -threshold.bits),
            charges=ledger.entries,
            private=ledger.private,
            seeded=source.seeded,
            infer=partial(inferred, threshold, reading.values, law_of_shares(share, reading.shares)),
        )
