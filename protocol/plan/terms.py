"""What follows from a plan: for masks, for a discovery, for its table under masks, and for noise from devices.

## Parts

What only some plans have. A part's values are always there, so nobody asks whether one is None.

    plan.closed            of a closed domain
    plan.masks             of a masked plan
    plan.fixed_threshold   of the selector `fixed`

To ask for a part that a plan does not have is a mistake in the program, a LookupError.

## Masks

What a plan means for masking: how many take part, how many are sure to stay, how many shares of noise remain.

## Discovery

What a plan that discovers its items spends on finding them, and what is left for releasing them.

Discovery and release together cost (epsilon, delta). One Gaussian mechanism of multiplier z would have the precision
1/z^2 for them; discovery takes a share of it, and the release the rest. How large a share is best depends on the data:
a few items that everybody has are found for next to nothing, and a long tail is worth half of the budget. So a first
look takes the smallest share, and what it leaves uncovered of all weight decides which share the whole discovery gets.
The proofs are in `protocol/privacy/bars.py`.

| of delta | spent on |
|---|---|
| a fifth | bars: a quarter of it for the first look's, the rest for the second's |
| the rest | noise; if the norm is chosen by the run, five eighths of it for Gaussian noise and three for Laplace |

What Laplace noise has is shared out evenly among the shares that may come out.

## The table of a discovery under masks

What a plan says about the table of a discovery under masks: its room, its test, what both cost.

A sum of tables can be read only if it holds no more distinct items than it has room for. Whether it does is an output
of the round, so it is made private and charged, before the round is asked for.

**The test.** Let N be the number of distinct items in the sum. Each user puts weights on at most D items
(`USER_ITEMS`). So N moves by at most D when a user is zeroed out. When one is replaced, at most D items are new and at
most D are gone, so N moves by at most D then, too: sensitivity D under both relations. The server draws discrete
Laplace noise Z cut to [-A, A] for sensitivity D, epsilon' and delta' (`bars.truncated_laplace`, whose proof for one key
that grows or shrinks is that N + Z is (epsilon', delta')-private), and releases nothing if

    N + Z > capacity + A.

With N <= capacity this never happens. With N > capacity + 2A it always does, so the table has room for `capacity + 2A`
items and no more are ever to be read. If all users together can hold at most `capacity` items, then there is no test,
no cost and no further room.

**Decoding.** A table within its room fails with a chance p over the salt, which was drawn after the data was fixed
(`decoding_bound`; p includes that it decodes wrongly). For all salts but a share of 2p, the tables of both of two
neighbours decode as they should, or are too full and the test fails for certain. For these salts the round shows what
a perfect table would show, which costs what discovery and test cost. For the others it may show anything: 2p more of
delta, also to those who know the salt. A table that does not decode fails with the words of a test that failed.

## Noise from devices

What a participant adds to a clipped sum, and which plans the devices can noise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from fedhist.protocol.errors import InvalidInput, InvalidPlan
from fedhist.protocol.items import item_bytes
from fedhist.protocol.masking.graph import (
    MAX_SIGNED_DEVICES,
    SESSION_BYTES,
    GraphParameters,
    MaskingTerms,
    parameters_for,
    share_of,
)
from fedhist.protocol.plan.fields import FIELDS, TABLE_TRUST
from fedhist.protocol.plan.rules import check_whole
from fedhist.protocol.privacy.bars import OpenNoise, epsilon_beside, least_bar, pass_chance, truncated_laplace
from fedhist.protocol.privacy.calibration import noise_multiplier
from fedhist.protocol.privacy.ledger import Alternative, Cost
from fedhist.protocol.privacy.neighbours import Neighbours, Norm, Sensitivity, clipped_sum_l2
from fedhist.protocol.privacy.noise import Noise, gaussian_noise
from fedhist.protocol.privacy.shares import Share, gaussian_share, laplace_share
from fedhist.protocol.sketch import MAX_FAILURE, TableShape
from fedhist.protocol.wire.keyed_codec import MAX_LABEL_BYTES

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan


MASKINGS = FIELDS["masking"].choices
MAX_PARTICIPANTS = 1_000_000
MIN_PARTICIPANTS = 3
"""With two, each knows the other's value once the sum is released."""
MAX_TABLE_CAPACITY = 2**22
MAX_SHARE = 0.3
"""The largest share of corrupt participants, and of drop-outs."""
DROPOUT_SHARE = 0.10
UNMASKED = {
    name: FIELDS[name].default for name in ("masking", "participants", "corrupt_share", "noise_from")
} | {"dropout_share": DROPOUT_SHARE}
"""The fields of a plan that does not mask."""

MOST_KEYS = 2**20
"""The most items that a discovery keeps: those of the largest noisy weights."""
LONGEST_NAME = 1024
"""The longest name of an item that is found or known, in bytes."""
USER_ITEMS = 100
"""D, the most of a user's items that help to find items: fewer lose where users have that many, more cost little."""

SHARES = (0.02, 0.4)
"""The shares of the precision that a discovery may end up with: after a first look, and after a second."""
UNCOVERED = 0.05
"""A first look that leaves more than this share of all weight uncovered is followed by a second."""
COVERAGE_SHARE = 0.004
"""The share of the precision that measures the sum of all weights."""

_BARS, _FIRST_BAR = 0.2, 0.05
_LAPLACE_OF_AUTO = 0.3
_MOST_BITS, _LEAST_BITS = 16, 6
_WIDEST_BITS = 27
_LOOK_VARIANCE = 100

_MUCH_LONGER = 2


@dataclass(frozen=True)
class Closed:
    """A public list of items: d of them, and s, the number of distinct items of a user that round 1 reckons with."""

    items: int
    sparsity: int


@dataclass(frozen=True)
class Masks:
    """Numbers of participants: all of them, and those that are sure to stay.

    With fewer than `minimum_survivors` at the end of a round nothing is released. `noise_shares` is n_min: how many
    shares of honest participants are sure to be in a sum, where each adds 1/n_min of the noise.
    """

    participants: int
    minimum_survivors: int
    noise_shares: int


def usual_dropout_share(plan: Plan) -> float:
    """A tenth; of fewer than ten participants the smallest whole percentage that lets one vanish, where one may.

    Of n participants one may vanish if those who are left can rebuild everybody's secrets. The seed of one who stays
    has n - 1 holders, of whom n - 2 are left, so t <= n - 2. Where nobody is corrupt, t is (n - 1) // 2 + 1 without
    signatures, so n is at least 4, and n // 2 + 1 with them, so n is at least 5.

    What is protected is what a plan for n - 1 participants without drop-outs protects: a sum over n - 1 or more.
    """
    participants = plan.participants
    if not plan.is_masked or participants is None:
        return DROPOUT_SHARE
    if not MIN_PARTICIPANTS <= participants <= 1 / DROPOUT_SHARE:
        return DROPOUT_SHARE
    one = math.ceil(100 / participants) / 100
    try:
        for devices in (participants, participants - 1):
            parameters_for(devices, _terms_for(plan, one))
    except InvalidInput:
        return DROPOUT_SHARE
    return one


def check_masking(plan: Plan) -> None:
    """Refuse settings of masking that do not go together."""
    if not plan.is_masked:
        _check_unused(plan)
        return
    most = MAX_SIGNED_DEVICES if plan.masking == "secagg-signed" else MAX_PARTICIPANTS
    if plan.participants is None:
        raise InvalidPlan(
            "masking without a number of participants",
            allowed=f"{MIN_PARTICIPANTS} to {most} participants",
            advice="give the number of devices or nodes with --nodes",
            code="no-participants",
        )
    if not MIN_PARTICIPANTS <= plan.participants <= min(most, plan.users):
        raise InvalidPlan(
            f"{plan.participants} participants under {plan.masking} for {plan.users} users",
            allowed=f"{MIN_PARTICIPANTS} to {most} participants with at least one user each",
            advice="choose other --nodes; a participant may hold many users",
            code="bad-number-of-participants",
        )
    for name, share in (("corrupt share", plan.corrupt_share), ("drop-out share", plan.dropout_share)):
        if not (math.isfinite(share) and 0 <= share <= MAX_SHARE):
            raise InvalidPlan(
                f"the {name} is {share!r}",
                allowed=f"a number from 0 to {MAX_SHARE}",
                advice=f"choose another --{name.replace('drop-out', 'dropout').replace(' ', '-')}",
                code="bad-share",
            )
    try:
        for devices in (plan.masks.participants, plan.masks.minimum_survivors):
            masking_graph(plan, devices)
    except InvalidInput as problem:
        raise InvalidPlan(
            problem.problem, allowed=problem.allowed, advice=problem.advice, code=problem.code
        ) from None
    if plan.is_open:
        _check_open(plan)
    if plan.masks.noise_shares < 1:
        raise InvalidPlan(
            f"{plan.participants} participants of which no honest one is sure to stay",
            allowed="more participants, or smaller shares of corrupt ones and drop-outs",
            advice="raise --nodes, or lower --corrupt-share or --dropout-share",
        )


def _check_unused(plan: Plan) -> None:
    used = [
        f"--{name.replace('_', '-')}" for name, default in UNMASKED.items() if getattr(plan, name) != default
    ]
    if used:
        raise InvalidPlan(
            f"a plan without masking sets {', '.join(used)}",
            allowed="these settings with masking only",
            advice="add --masking secagg or leave them out",
            code="masking-settings-unused",
        )


def _check_open(plan: Plan) -> None:
    if not plan.discovers:
        raise InvalidPlan(
            f"the release {plan.release} under masking",
            allowed="discover, the one release of an open domain under masking",
            advice="use --release discover with one of its selectors, or leave --masking out",
            code="masked-open-release",
        )
    check_whole("max items", plan.max_items, 1, MAX_TABLE_CAPACITY)
    check_whole("max item bytes", plan.max_item_bytes, 1, MAX_LABEL_BYTES)


def masks_of(plan: Plan) -> Masks:
    """All participants, those that are sure to stay, and the shares of noise that are sure to hide something.

    Those that stay are all less the drop-outs that are tolerated, and at least MIN_PARTICIPANTS less one. Those that
    may be corrupt know their own shares of noise, which are not counted on.
    """
    if plan.participants is None:
        raise LookupError("a plan without masking has no participants: ask plan.is_masked first")
    survivors = max(plan.participants - share_of(plan.participants, plan.dropout_share), MIN_PARTICIPANTS - 1)
    corrupt = share_of(plan.participants, plan.corrupt_share)
    return Masks(
        plan.participants,
        minimum_survivors=survivors,
        noise_shares=survivors - corrupt,  # audited: noise shares
    )


def masking_graph(plan: Plan, devices: int | None = None) -> GraphParameters:
    """The degree of the graph and the share threshold when this many participants advertise; None for all of them."""
    asked = plan.masks.participants
    return parameters_for(asked if devices is None else devices, _terms_for(plan, plan.dropout_share))


def _terms_for(plan: Plan, dropout_share: float) -> MaskingTerms:
    """What the graph depends on, for a session that is never held."""
    return MaskingTerms(
        session=bytes(SESSION_BYTES),
        length=1,
        width=64,
        corrupt_share=plan.corrupt_share,
        dropout_share=dropout_share,
        signed=plan.is_signed,
        participants=plan.participants or 0,
    )


@dataclass(frozen=True)
class Discovery:
    """The terms of a discovery.

    Args:
        user_items: D, the most of a user's items that count.
        bits: weights are in steps of 2^-bits.
        sensitivity: of the sums of weights of all keys, in steps.
        multiplier: z, of one Gaussian mechanism that would spend the whole budget of discovery and release.
        shares: of the precision, rising; the first look takes the first.
        delta: of discovery and release.
        laplace_delta: what a release with Laplace noise may spend, at each of the shares; 0 for none.
        epsilon: of discovery and release.
    """

    user_items: int
    bits: int
    sensitivity: Sensitivity
    multiplier: float
    shares: tuple[float, ...]
    delta: float
    laplace_delta: float
    epsilon: float

    @property
    def coverage_noise(self) -> Noise:
        """On the sum of all weights."""
        largest = Sensitivity(self.user_items << (2 * self.bits), Norm.L2, self.sensitivity.neighbours)
        return gaussian_noise(largest, self.multiplier / math.sqrt(COVERAGE_SHARE))

    @cached_property
    def variances(self) -> tuple[Fraction, ...]:
        """Of the noise on each key at each share, falling."""
        whole = Fraction(self.multiplier) ** 2 * self.sensitivity.square
        return tuple(whole / Fraction(share) + _LOOK_VARIANCE for share in self.shares)

    @cached_property
    def bars(self) -> tuple[int, ...]:
        """What a noisy weight must exceed at each share, in steps."""
        return tuple(
            least_bar(chance, most=self.user_items, bits=self.bits, deviation=math.sqrt(variance))
            for chance, variance in zip(self._chances, self.variances, strict=True)
        )

    @cached_property
    def bar_delta(self) -> float:
        """What it costs that a user's own key may pass a bar."""
        passing = [
            pass_chance(bar, most=self.user_items, bits=self.bits, deviation=math.sqrt(variance))
            for bar, variance in zip(self.bars, self.variances, strict=True)
        ]
        return _odds_of_passing(passing)

    @property
    def most_of_bars(self) -> float:
        """What `bar_delta` is at most, as the bars are chosen: nodes count this one, which takes no normal tails."""
        return _odds_of_passing(self._chances)

    @property
    def _chances(self) -> list[float]:
        bars = self.delta / (1 + self.delta)
        return [_FIRST_BAR * bars, (_BARS - _FIRST_BAR) * bars]

    def release_multiplier(self, share: float) -> float:
        """Of the Gaussian noise that a discovery of this share leaves for the release."""
        return self.multiplier / math.sqrt(1 - share - COVERAGE_SHARE)  # audited: precision left

    def release_epsilon(self, share: float) -> float:
        """Of the Laplace noise that a discovery of this share leaves for the release; 0 for none."""
        before = self.before_release(share)
        return epsilon_beside(before, epsilon=self.epsilon, delta=self.laplace_delta)  # audited: epsilon left

    def before_release(self, share: float) -> float:
        """The multiplier of all Gaussian noise of a discovery that took this share."""
        return self.multiplier / math.sqrt(share + COVERAGE_SHARE)


def discovery_of(plan: Plan) -> Discovery:
    """The terms, from the plan alone."""
    if not plan.discovers:
        raise LookupError("a plan that discovers no items has no terms for it: ask plan.discovers first")
    laplace = {"gaussian": 0.0, "laplace": 1 - _BARS}.get(plan.mechanism, _LAPLACE_OF_AUTO)
    # A release with Laplace noise alone has no delta for a Gaussian one: its noise is in discovery only.
    gaussian = 1 - _BARS if plan.mechanism == "laplace" else 1 - _BARS - laplace
    multiplier = noise_multiplier(plan.epsilon, plan.delta * gaussian)
    widest = multiplier * max(1 / math.sqrt(min(SHARES)), math.sqrt(USER_ITEMS / COVERAGE_SHARE))
    bits = min(_MOST_BITS, _WIDEST_BITS - 1 - math.ceil(math.log2(widest)))
    if bits < _LEAST_BITS:
        raise InvalidPlan(
            "the noise of the discovery would be wider than the samplers can draw",
            allowed="a larger epsilon",
            advice="raise --epsilon",
        )
    return Discovery(
        user_items=USER_ITEMS,
        bits=bits,
        sensitivity=clipped_sum_l2(1 << bits, domain_size=None, neighbours=Neighbours(plan.neighbours)),
        multiplier=multiplier,  # audited: discovery noise
        shares=SHARES,
        delta=plan.delta,
        laplace_delta=plan.delta * laplace / len(SHARES),
        epsilon=plan.epsilon,
    )


def ways_to_release(plan: Plan) -> tuple[Alternative, ...]:
    """All that discovery and release may spend: Gaussian noise, whatever its shares, or Laplace noise at each share."""
    terms, ways = plan.discovery, []
    if plan.mechanism != "laplace":
        ways.append(Alternative(multiplier=terms.multiplier))
    if terms.laplace_delta:
        ways += [
            Alternative(multiplier=terms.before_release(share), epsilon=terms.release_epsilon(share))
            for share in terms.shares
        ]
    return tuple(ways)


def _odds_of_passing(chances: Sequence[float]) -> float:
    return sum(chances) / (1 - sum(chances))


def check_discovery(plan: Plan) -> None:
    """Refuse settings of a discovery that do not go together, or that a plan without one has."""
    if not plan.discovers:
        if plan.known_items is not None:
            raise InvalidPlan(
                "known items in a plan that discovers none",
                allowed="known items with an open domain and the release discover",
                advice="leave --known-items out; for a closed domain list the items with --items-file",
                code="unused-known-items",
            )
        return
    if len(plan.known) >= MOST_KEYS:
        raise InvalidPlan(f"{len(plan.known):,} known items", allowed=f"fewer than {MOST_KEYS:,}")
    if len(set(plan.known)) != len(plan.known) or "" in plan.known:
        raise InvalidPlan(
            "the known items have one twice, or one without a name",
            allowed="one item a line, each once",
            advice="correct the file of --known-items",
            code="bad-known-items",
        )
    if any(len(item_bytes(name)) > LONGEST_NAME for name in plan.known):
        raise InvalidPlan(
            "the name of a known item is too long",
            allowed=f"up to {LONGEST_NAME:,} bytes",
            code="known-item-too-long",
        )
    terms = plan.discovery
    if terms.laplace_delta and not all(terms.release_epsilon(share) > 0 for share in terms.shares):
        raise InvalidPlan(
            "the discovery leaves no epsilon for Laplace noise: delta pays for nearly all of its noise",
            allowed="a larger epsilon, or the mechanism gaussian",
            advice="raise --epsilon, lower --delta or use --mechanism gaussian",
            code="nothing-for-laplace",
        )


def table_shape(plan: Plan) -> TableShape:
    """The table, with room for all that the test may let pass."""
    return TableShape(capacity=table_room(plan), label_bytes=plan.max_item_bytes)


def table_room(plan: Plan) -> int:
    """How many distinct items the table must be able to hold."""
    noise = fit_noise(plan)
    return plan.max_items if noise is None else plan.max_items + 2 * noise.bar  # audited: room


def fit_noise(plan: Plan) -> OpenNoise | None:
    """The noise on the number of distinct items, in [-bar, bar]; None where no test is needed."""
    if not is_tested(plan):
        return None
    # The number moves by at most D under either relation, as one key does under zero-out.
    return truncated_laplace(
        plan.discovery.user_items,
        epsilon=plan.epsilon_select,
        delta=plan.delta_select,
        neighbours=Neighbours.ZERO_OUT,
    )


def is_tested(plan: Plan) -> bool:
    """Whether users could bring in more items than the capacity."""
    return plan.users * plan.discovery.user_items > plan.max_items


def decoding_delta(plan: Plan) -> float:
    """2p."""
    return _decoding_delta(plan.max_item_bytes, table_room(plan))


def most_of_table(plan: Plan) -> Cost:
    """The most that test and decoding may cost; nothing for a plan that has no table.

    A bound for devices: what a ledger is charged is less, and takes longer to compute.
    """
    if not plan.has_table:
        return Cost(0.0, 0.0)
    decoding = Cost(0.0, 2 * MAX_FAILURE)
    return decoding + Cost(plan.epsilon_select, plan.delta_select) if is_tested(plan) else decoding


def check_table(plan: Plan) -> None:
    """Refuse a plan whose table would need a delta that it does not have, or be too long."""
    if not plan.has_table or not is_tested(plan):
        return
    if plan.delta_select == 0:
        untested = plan.users * plan.discovery.user_items
        more = f", or raise --max-items to {untested:,}" if untested <= MAX_TABLE_CAPACITY else ""
        raise InvalidPlan(
            "an open domain under masks without a delta-select",
            allowed="a delta-select above 0, which the test for room in the table spends",
            advice=f"leave --delta-select out{more}",
            code="no-delta-select",
        )
    try:
        table_shape(plan)
    except InvalidPlan as problem:
        raise InvalidPlan(
            f"for --max-items {plan.max_items}, {problem.problem}",
            allowed=problem.allowed,
            advice="lower --max-items or --max-item-bytes, or raise --epsilon-select",
            code="table-too-large",
        ) from None


def table_notes(plan: Plan) -> list[str]:
    """Notes on the plan's table for its user, before it costs anything."""
    if not plan.has_table:
        return []
    notes = [TABLE_TRUST]
    longest = table_shape(plan).length
    plain = TableShape(capacity=plan.max_items, label_bytes=plan.max_item_bytes).length
    if longest > _MUCH_LONGER * plain:
        notes.append(
            f"the private test for room makes the table {longest / plain:.1f} times as long, "
            f"{8 * longest / 1e6:,.1f} MB a participant: a higher --epsilon-select makes it shorter"
        )
    return notes


@functools.lru_cache(maxsize=256)
def _decoding_delta(label_bytes: int, room: int) -> float:
    return 2 * TableShape(capacity=room, label_bytes=label_bytes).failure_bound


def release_share(plan: Plan, steps: int) -> Share:
    """What each participant adds to each item of its clipped sum, for a bound in steps."""
    sensitivity = plan.release_sensitivity(steps)
    if plan.norm is Norm.L2:
        return gaussian_share(sensitivity, plan.multiplier, shares=plan.noise_shares)
    return laplace_share(sensitivity, plan.epsilon, shares=plan.noise_shares)


def growth_of_mean(plan: Plan) -> float:
    """How much larger the mean absolute noise is with the shares of all participants than with those of n_min.

    With r = participants/n_min, sqrt(r) for Gaussian noise. A difference of Gamma variables of shape r and scale b,
    which that of negative binomials is on a fine grid, has the mean absolute value 2 b Gamma(r + 1/2)/(sqrt(pi)
    Gamma(r)). It steers the choice of the threshold only.
    """
    ratio = plan.masks.participants / plan.masks.noise_shares
    if plan.mechanism == "gaussian":
        return math.sqrt(ratio)
    return 2 / math.sqrt(math.pi) * math.exp(math.lgamma(ratio + 0.5) - math.lgamma(ratio))


def smallest_steps(plan: Plan) -> int:
    """The smallest threshold that round 2 may have, in steps of the grid."""
    if plan.threshold is None:
        return plan.step_range[0]
    return plan.at_steps(math.ldexp(plan.threshold, plan.grid_bits)).steps


def check_device_noise(plan: Plan) -> None:
    """Refuse a plan whose noise the devices can't draw, at any of its thresholds.

    Round 1 depends on what the selector reads, and is checked with it.
    """
    if not plan.noise_by_devices:
        return
    if plan.discovers:
        for share in plan.discovery.shares:
            plan.discovered(1, share)
        return
    if plan.per_item:
        raise InvalidPlan(
            "noise from devices where items are clipped one by one",
            allowed="noise from devices for whole histograms",
            advice="the bounds of single items could not be chosen from so noisy a tail; use --noise-from server",
            code="device-noise-for-items",
        )
    # Noise grows with the threshold: shares that are wide enough at the smallest are so at every one.
    release_share(plan, smallest_steps(plan))
