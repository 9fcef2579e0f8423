"""`keys-above-bar`: the server adds noise to the keys that somebody kept and shows those above a bar. Open domains."""

from __future__ import annotations

from functools import partial

import numpy as np

from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Integers, Labels
from fedhist.protocol.items import byte_order
from fedhist.protocol.measurements.keys import KeptItems, KeySums
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.bars import OpenNoise
from fedhist.protocol.privacy.ledger import ApproximateLoss, Charge, Ledger
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.estimates import law_above_bar, limits_above_bar
from fedhist.server.releases.contract import Inference, Release, ReleaseRule, RuleWords
from fedhist.server.selection.contract import Selection


class KeysAboveBar(ReleaseRule):
    """Noise the keys of positive clipped sum and show those above the bar.

    Keys are noised in the order of their bytes, so that a release does not depend on who numbered them. Those that are
    written alike are one, and released as a text. A key that no clipped
    histogram holds is never drawn for: whether it was clipped away or never there can't be told.

    Deviation from Algorithm 3, which noises every key of positive unclipped total, because that is not private.
    """

    name = "keys-above-bar"
    measures = KeptItems.name

    def words(self, plan: Plan) -> RuleWords:
        """Noise and a bar."""
        detail = (
            "The server adds discrete noise to every key and withholds the keys that are not above the bar."
        )
        return RuleWords("adds noise, a bar", detail, plan.cutoff_release, adds="noise and withheld keys")

    def warnings(self, plan: Plan) -> dict[str, str]:
        """N C at the bar or below for every C: all that users can keep of one key.

        Noise is symmetric, so a key whose sum is at the bar or below is shown at most half of the time.
        """
        steps = plan.candidate_steps if plan.threshold is None else np.array([plan.fixed_threshold.steps])
        ratio = min(noise.bar / int(one) for noise, one in zip(plan.open_noises(steps), steps, strict=True))
        if ratio < plan.users:
            return {}
        warning = (
            f"no key can pass the bar with so few users: a key that all {plan.users:,} users have would be shown less "
            f"than half of the time, because the bar is {ratio:.3g} times the threshold. Ask more users, or raise "
            "--epsilon or --delta"
        )
        return {"bar": warning}

    def charges(self, plan: Plan, threshold: Threshold | None) -> tuple[Charge, ...]:
        """The exact delta of the noise and the bar, at most the plan's.

        A threshold that was drawn is one of several that it might have been, and what a run promises holds for each:
        so the largest of their deltas is charged, not the one of the threshold that came out.
        """
        parameters: dict[str, float | int | str] = {}
        delta = plan.delta
        if threshold is not None:
            (noise,) = plan.open_noises(np.array([threshold.steps]))
            parameters = {"threshold": threshold.steps, "scale": float(noise.scale), "bar": noise.bar}
            delta = noise.delta
            if plan.threshold is None:
                parameters["delta_at_threshold"] = noise.delta
                delta = max(delta, *(other.delta for other in plan.open_noises(plan.candidate_steps)))
        sensitivity = plan.release_sensitivity(0 if threshold is None else threshold.steps)
        charge = Charge(
            round="release",
            name=plan.cutoff_release,
            parameters=parameters,
            sensitivity=sensitivity.value,
            norm=sensitivity.norm.value,
            neighbours=plan.neighbours.value,
            epsilon=plan.epsilon,
            delta=delta,
            loss=ApproximateLoss(),
        )
        return (charge,)

    def build(
        self, plan: Plan, selection: Selection, reading: KeySums, *, ledger: Ledger, source: Source
    ) -> Release:
        """Noise, then the bar."""
        (noise,) = plan.open_noises(np.array([selection.threshold.steps]))
        keys, counts = by_bytes(reading.keys, reading.values, reading.labels)
        keys, counts = keys[counts > 0], counts[counts > 0]  # audited: keys held
        noised = counts + noise.draw(len(counts), source=source)
        shown = noised > noise.bar
        return Release(
            plan=plan,
            threshold=selection.threshold.value,
            histogram=noised[shown].astype(np.float64),
            standard_error=noise.standard_deviation,
            charges=ledger.entries,
            private=ledger.private,
            seeded=source.seeded,
            labels=as_texts(keys[shown], reading.labels),
            keys=keys[shown],
            bar=noise.bar,
            infer=partial(_inferred, noised[shown], noise),
        )


def _inferred(noised: Integers, noise: OpenNoise) -> Inference:
    return Inference(at_least=limits_above_bar(noised, law_above_bar(noise), noise.bar))


def as_texts(keys: Integers, labels: Labels | None) -> list[str | int]:
    """The keys' names as texts: which of its users wrote a number as one is not part of what is released."""
    return [str(key if labels is None else labels[key]) for key in keys.tolist()]


def by_bytes(keys: Integers, counts: Integers, labels: Labels | None) -> tuple[Integers, Integers]:
    """The keys in the order of their labels' bytes, plain numbers in decimal; those of the same bytes added up.

    Keys rise. Of those that are written alike the first that is a text stands for all, and the first if none is.
    """
    names = range(int(keys.max(initial=-1)) + 1) if labels is None else labels
    order, again = byte_order(names, keys)
    keys, counts = keys[order], counts[order]
    if not again.any():
        return keys, counts
    starts = np.flatnonzero(~again)
    chosen = keys[starts]
    for place in np.flatnonzero(np.diff(starts, append=len(keys)) > 1).tolist():
        end = starts[place + 1] if place + 1 < len(starts) else len(keys)
        alike = keys[starts[place] : end].tolist()
        chosen[place] = next((key for key in alike if isinstance(names[key], str)), alike[0])
    return chosen, np.add.reduceat(counts, starts)
