"""What a plan means for masking: how many take part, how many are sure to stay, how many shares of noise remain."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedhist.protocol.errors import InvalidInput, InvalidPlan
from fedhist.protocol.masking.graph import (
    MAX_SIGNED_DEVICES,
    SESSION_BYTES,
    GraphParameters,
    MaskingTerms,
    parameters_for,
    share_of,
)
from fedhist.protocol.plan.checks import check_whole
from fedhist.protocol.plan.fields import FIELDS
from fedhist.protocol.plan.parts import Masks
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
        signed=plan.is_signed,
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
