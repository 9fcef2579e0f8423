"""What every measurement must do: its sums, bounds, sensitivities, bytes, masks and words."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np

from fedhist.client.policy import round_cost
from fedhist.protocol.errors import DecodeError, InvalidInput, OutOfBounds
from fedhist.protocol.histograms import Floats
from fedhist.protocol.measurements import MEASUREMENTS, Measurement
from fedhist.protocol.measurements.base import (
    NOTHING,
    Bound,
    Column,
    Given,
    ItemBounds,
    Nothing,
    Salt,
)
from fedhist.protocol.plan import Plan
from fedhist.protocol.plugins import as_built_in
from fedhist.protocol.privacy.calibration import gaussian_epsilon
from fedhist.protocol.privacy.neighbours import COUNTED, Neighbours, Norm
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.protocol.rounds import Contribution, Request, Round
from fedhist.protocol.sketch import SALT_BYTES
from fedhist.protocol.wire.envelope import Envelope, decode, encode
from fedhist.testing.contract import (
    HUGE,
    PLANS,
    Contract,
    added,
    by_label,
    histograms_of,
    labels_for,
    measured,
    part_of_reading,
    require,
    some_rows,
    telling_rows,
    total_of,
    variant,
)

Givens = Callable[[Plan], list[Given]]
"""What the rounds before may hand on under a plan."""

SEEDS = range(2)
REACHED = 0.9
"""A claimed sensitivity is reached within this factor by some pair of neighbours."""


@dataclass(frozen=True)
class Asked:
    """A measurement with the plans that it is checked under.

    Args:
        kind: the measurement.
        plans: it is asked for under those that it fits, and must be refused under the others.
        givens: what the rounds before may hand on under a plan.
    """

    kind: type[Measurement[Any]]
    plans: Collection[Plan]
    givens: Givens

    def __iter__(self) -> Iterator[Measurement[Any]]:
        # What is released is measured once the mechanism is chosen.
        chosen = [
            plan for plan in self.plans if self.kind.round is Round.SELECT or not plan.chooses_mechanism
        ]
        fitting = [plan for plan in chosen if self.kind.fits(plan)]
        require(fitting, f"no plan fits {self.kind.name}; pass some that do as plans=")
        return (self.kind(plan, given) for plan in fitting for given in self.givens(plan))


@contextmanager
def _in_registry(asked: Asked) -> Iterator[None]:
    with as_built_in(), patch.dict(MEASUREMENTS, {asked.kind.name: asked.kind}):
        yield


MEASUREMENT: Contract[Asked] = Contract("measurement", _in_registry)


def check_measurement(
    kind: type[Measurement[Any]],
    *,
    plans: Collection[Plan] = tuple(PLANS.values()),
    givens: Givens | None = None,
    skip: Collection[str] = (),
) -> None:
    """Run all checks on a measurement, in the registry or not.

    Args:
        kind: the measurement.
        plans: small plans, some of which it fits.
        givens: what the rounds before may hand on under a plan; needed for a `takes` of your own.
        skip: names of checks that it can't pass, such as `claims_of_too_few_users_are_refused`.
    """
    MEASUREMENT.run_all(Asked(kind, plans, givens or usual_givens(kind)), skip)


def usual_givens(kind: type[Measurement[Any]]) -> Givens:
    """Small, middling and large values of what the project's own measurements take."""

    def bounds(plan: Plan) -> list[Bound]:
        low, high = plan.step_range
        return [Bound(plan.at_steps(steps)) for steps in (low, (low + high) // 2, high)]

    salt = bytes(range(SALT_BYTES))
    makes: dict[type[Given], Callable[[Plan], Any]] = {
        Nothing: lambda plan: [NOTHING],
        Column: lambda plan: [Column(name) for name in sorted(kind.offers)],
        Bound: bounds,
        ItemBounds: lambda plan: [
            ItemBounds(np.linspace(*plan.step_range, plan.closed.items, dtype=np.int64))
        ],
        Salt: lambda plan: [Salt(salt)],
    }
    require(kind.takes in makes, f"{kind.name} takes {kind.takes.__name__}: pass some as givens=")
    return makes[kind.takes]


@MEASUREMENT.check
def sums_do_not_depend_on_the_sharding(asked: Asked) -> None:
    """Any cut gives the same sum, down to one user each: one device is a batch of one."""
    for one, seed in itertools.product(asked, SEEDS):
        whole = histograms_of(some_rows(one.plan, seed, users=30), first_user=5)
        cuts = [0, 1, seed + 2, whole.users]
        for ends in (cuts, range(whole.users + 1)):
            shards = [whole.rows(start, stop) for start, stop in itertools.pairwise(ends)]
            parts = added(one, [measured(one, shard) for shard in shards])
            at_once = added(one, [measured(one, whole)])
            same = np.array_equal(parts.values, at_once.values) and _rows(one, parts) == _rows(one, at_once)
            require(same, f"{len(shards)} shards of the users sum to something else than all users at once")


@MEASUREMENT.check
def the_shape_is_what_is_sent(asked: Asked) -> None:
    """Its length, its columns by key, and no user adds more than the largest value."""
    for one in asked:
        shape = one.shape
        for row in (*telling_rows(one.plan), *some_rows(one.plan, 1)):
            sent = measured(one, row[np.newaxis])
            length = len(sent.values)
            require(length == shape.length, f"{length} values; the shape says {shape.length}")
            columns = 0 if sent.keyed is None else sent.keyed.values.shape[1]
            require(columns == shape.columns, f"{columns} columns by key; the shape says {shape.columns}")
            hidden = one.names_travel or one.plan.is_masked or not columns
            require(hidden, "keys travel in the clear, and names_travel does not say so")
            values = sent.values if sent.keyed is None else np.append(sent.values, sent.keyed.values)
            require(values.dtype == np.int64, f"values are {values.dtype}; they must be whole, int64")
            require((values >= 0).all(), "one user's value is negative")
            most = values.max(initial=0)
            require(most <= shape.largest, f"one user adds {most}; the shape says at most {shape.largest}")
            if sent.keyed is not None:
                keys = sent.keyed.keys
                space = len(row) * shape.bins
                rising = (np.diff(keys, prepend=-1, append=space) > 0).all()
                require(rising, f"keys do not rise below {space}")


@MEASUREMENT.check
def honest_users_pass(asked: Asked) -> None:
    """Alone and together, with nothing and with far too much."""
    for one in asked:
        telling = telling_rows(one.plan)
        alone = [row[np.newaxis] for row in telling]
        crowds = [some_rows(one.plan, seed) for seed in SEEDS]
        for rows in (telling, *alone, *crowds, np.repeat(telling[-1:], 10, axis=0)):
            try:
                one.check(measured(one, rows), len(rows))
            except OutOfBounds as problem:
                raise AssertionError(f"{len(rows)} honest users are refused: {problem}") from problem


@MEASUREMENT.check
def claims_of_too_few_users_are_refused(asked: Asked) -> None:
    """The answer of ten users who each add as much as they can is not one of nine."""
    for one in asked:
        items = len(labels_for(one.plan))
        refused = 0
        answers = [
            measured(one, np.tile(heavy, (10, 1)))
            for heavy in (np.full(items, HUGE // items), HUGE * np.eye(items, dtype=np.int64)[0])
        ]
        if one.round is Round.DISCOVER:
            # As many items as count, which are more than have labels here.
            many = histograms_of(np.ones((10, one.plan.discovery.user_items), dtype=np.int64))
            answers.append(one.of(many, source=SeededSource(1)))
        for answer in answers:
            try:
                one.check(answer, 9)
            except OutOfBounds:
                refused += 1
        require(refused, "ten heavy users' answer passes as that of nine")


@MEASUREMENT.check
def one_user_moves_the_reading_by_the_sensitivity(asked: Asked) -> None:
    """By no more, for both relations, and by nearly as much (REACHED) in the worst case."""
    for neighbours in Neighbours:
        changed = [variant(plan, neighbours=neighbours.value) for plan in asked.plans]
        plans = [plan for plan in changed if plan and asked.kind.fits(plan)]
        for one in replace(asked, plans=plans) if plans or neighbours in COUNTED else ():
            base, telling = some_rows(one.plan, 2) + 1, telling_rows(one.plan)
            with_each = [total_of(one, np.vstack([base, row]), noise_seed=None) for row in telling]
            without = total_of(one, base, noise_seed=None)
            for name, claimed in one.sensitivities.items():
                require(claimed.neighbours is neighbours, f"{name}: a sensitivity for other neighbours")
                parts = np.array([part_of_reading(one, total, name) for total in with_each])
                moves = parts - part_of_reading(one, without, name)
                if neighbours is Neighbours.REPLACE_ONE:
                    moves = (parts[:, np.newaxis] - parts).reshape(-1, *parts.shape[1:])
                moved = _size(moves, claimed.norm)
                stated = f"{neighbours}: one user moves {name} by {moved:.6g}, not {claimed.value:.6g}"
                require(moved <= claimed.value * (1 + 1e-9), stated)
                require(moved >= claimed.value * REACHED, f"{stated}, which no neighbours come near")


@MEASUREMENT.check
def a_share_of_noise_costs_what_a_device_charges(asked: Asked) -> None:
    """Where participants add the noise, the sum must not tell more than a device has noted for the round."""
    for one in asked:
        share = one.share
        if share is None:
            continue
        cost = round_cost(one.plan, one.round, paid=False)
        (moved,) = one.sensitivities.values()
        if moved.norm is Norm.L1:
            epsilon = moved.value / float(share.spread)
        else:
            epsilon = gaussian_epsilon(share.deviation(share.shares) / moved.value, cost.delta)
        sentence = f"epsilon is {epsilon:.4g} for {one.round}; a device charges {cost.epsilon:.4g}"
        require(epsilon <= cost.epsilon * (1 + 1e-6), sentence)


@MEASUREMENT.check
def bytes_and_fields_hold_all_of_it(asked: Asked) -> None:
    """A request and its answer come back from the wire as they were."""
    for one in asked:
        request = Request(one.plan, one.name, one.given)
        envelope = Envelope("run", request)
        again = Envelope.from_fields(envelope.to_fields())
        require(again.fingerprint == envelope.fingerprint, "another request comes back from its fields")
        rows, labels = some_rows(one.plan, 3), labels_for(one.plan)
        summed = measured(one, rows)
        sent = Contribution(one.round, one.plan.digest, len(rows), summed.values, summed.keyed)
        got, names = decode(encode(sent, request, labels), again.request)
        require(np.array_equal(got.values, sent.values), "other values come back from the bytes")
        bins = one.shape.bins
        same = by_label(got.keyed, bins, names) == by_label(sent.keyed, bins, labels)
        require(same and got.users == sent.users, "other users or keys come back from the bytes")


@MEASUREMENT.check
def plans_that_it_does_not_fit_are_refused(asked: Asked) -> None:
    """A device that answered could send what its plan hides, or answer a round twice."""
    fields = Envelope("run", Request(PLANS["gaussian"], "tail")).to_fields()
    for one, plan in itertools.product(itertools.islice(asked, 1), asked.plans):
        named = {"plan": json.dumps(plan.to_json()), "plan-digest": plan.digest}
        named |= {"asks": one.name, "round": one.round.value}
        wrong = [] if one.fits(plan) else [fields | named | one.given.to_fields()]
        others = [other for other in type(one.round) if other is not one.round]
        wrong += [fields | named | one.given.to_fields() | {"round": other.value} for other in others]
        for request in wrong:
            try:
                Envelope.from_fields(request)
            except DecodeError:
                continue
            raise AssertionError("it is answered under a plan that it does not fit, or in another round")


@MEASUREMENT.check
def masked_sums_are_the_plain_ones(asked: Asked) -> None:
    """The participants' vectors have one length, and their sum modulo 2^width is that of the users."""
    for one in asked:
        if not one.plan.is_masked:
            continue
        whole, labels = histograms_of(some_rows(one.plan, 4)), labels_for(one.plan)
        shards = [whole.rows(0, 1), whole.rows(1, 5), whole.rows(5, whole.users)]
        vectors = [one.to_masked(measured(one, shard), labels) for shard in shards]
        lengths = {len(vector) for vector in vectors}
        require(lengths == {one.masked_length}, f"vectors of {lengths} values; {one.masked_length} are due")
        limit = one.plan.users * one.shape.largest + one.shape.noise
        require(one.masked_width == 64 or limit < 2 ** (one.masked_width - 1), "sums wrap around")
        total = one.from_masked(np.sum(vectors, axis=0), users=whole.users, shares=3)
        plain = measured(one, whole)
        require(np.array_equal(total.values, plain.values), "the masked sum is another")
        names = total.labels if total.labels is not None else labels
        same = by_label(total.keyed, one.shape.bins, names) == by_label(plain.keyed, one.shape.bins, labels)
        require(same, "the masked sum has other keys")


@MEASUREMENT.check
def shares_of_noise_stay_inside_their_reach(asked: Asked) -> None:
    """Devices add noise where the plan says so, and the width of masked sums has room for it."""
    for one in asked:
        adds, asked_to = one.share is not None, one.noised(one.plan)
        require(adds == asked_to, f"devices add noise: {adds}; the plan asks for it: {asked_to}")
        require(one.charged_ahead(one.plan) or not adds, "noisy answers are not charged ahead")
        if one.share is not None:
            draws = [
                one.share.draw(one.shape.length, source=SeededSource(1).fork(number))
                for number in range(one.plan.masks.participants)
            ]
            most = np.abs(np.sum(draws, axis=0)).max()
            require(0 < most <= one.shape.noise, f"noise of {most}; the shape says up to {one.shape.noise}")


@MEASUREMENT.check
def words_say_what_is_sent(asked: Asked) -> None:
    """Every text is there, the detail is sentences, and a number of values is the true one."""
    for one in asked:
        words = one.words(one.plan)
        for name in ("asks", "work", "sends", "detail"):
            require(getattr(words, name).strip(), f"the words for `{name}` are missing")
        require(re.fullmatch(r"[A-Z].*\.", words.detail), "the detail is not sentences")
        number = re.match(r"[\d,]+", words.sends)
        if number:
            sent = int(number[0].replace(",", ""))
            require(sent == one.shape.length, f"the words say {sent} values; {one.shape.length} are sent")
        require(one.where, "the kind of plan has no name")


@MEASUREMENT.check
def a_devices_answer_can_be_shown(asked: Asked) -> None:
    """Named values of the answer, as many as wanted at most, and some for a user with many counts."""
    for one in asked:
        shown = one.shown(measured(one, telling_rows(one.plan)[-1:]), labels_for(one.plan), 4)
        require(1 <= len(shown) <= 4, f"{len(shown)} values are shown where up to 4 are wanted")
        require(all(name and float(value) for name, value in shown), "a value or its name is missing")


@MEASUREMENT.check
def equal_keys_have_equal_sums(asked: Asked) -> None:
    """Whatever else differs between two plans: simulations reuse sums by their key."""
    changes: list[dict[str, Any]] = [
        {},
        {"neighbours": "replace-one"},
        {"epsilon_select": 0.3},
        {"epsilon": 2.0},
        {"minimum_cohort": 2},
        {"candidates": 5},
        {"max_threshold": 40.0},
        {"min_threshold": 2.0},
        {"sparsity": 1},
        {"known_items": "pear"},
        {"mechanism": "laplace", "selector": "quantile"},
    ]
    rows = some_rows(next(iter(asked)).plan, 5)
    seen: dict[object, tuple[object, object]] = {}
    for plan in asked.plans:
        others = [
            other for change in changes if (other := variant(plan, **change)) and asked.kind.fits(other)
        ]
        for one in replace(asked, plans=others) if others else ():
            try:
                summed = measured(one, rows)
            except InvalidInput:
                continue
            sums = (summed.values.tolist(), _rows(one, summed))
            require(seen.setdefault(one.key, sums) == sums, f"two sums have the key {one.key[:2]}")


def _size(moves: Floats, norm: Norm) -> float:
    """The largest change, in the norm over items."""
    if norm is Norm.SCORE:
        return float(np.abs(moves).max())
    return float(np.linalg.norm(moves, ord=1 if norm is Norm.L1 else 2, axis=1).max())


def _rows(one: Measurement[Any], summed: Any) -> Mapping[object, list[int]]:
    return by_label(summed.keyed, one.shape.bins, labels_for(one.plan))
