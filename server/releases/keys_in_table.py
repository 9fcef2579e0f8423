"""`keys-in-table`: the same from a table under masks, after a private test whether its items fit. Open domains."""

from __future__ import annotations

from dataclasses import replace

from fedhist.protocol.errors import TableTooSmall
from fedhist.protocol.grid import Threshold
from fedhist.protocol.measurements.given import SaltedBound
from fedhist.protocol.measurements.kept_items import KeySums
from fedhist.protocol.measurements.kept_table import KeptTable
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.table_terms import decoding_delta, fit_delta, fit_noise, is_tested, table_room
from fedhist.protocol.privacy.ledger import ApproximateLoss, Charge, Ledger
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.sketch.table_hash import SALT_BYTES
from fedhist.server.releases.contract import Release
from fedhist.server.releases.keys_above_bar import KeysAboveBar
from fedhist.server.selection.contract import Selection


class KeysInTable(KeysAboveBar):
    """All keys of the table are noised: a sum is a residue modulo 2^64, which is whatever some participant made it.

    A sum is read as a signed number only afterwards, so that what is shown of a key is a function of its noisy
    residue. With honest participants all have positive sums. Charged before it is asked for, because a table may fail
    to decode while the answers are read.
    """

    name = "keys-in-table"
    measures = KeptTable.name
    positive_only = False

    def given(self, plan: Plan, selection: Selection, *, source: Source) -> SaltedBound:
        """With a new salt."""
        return SaltedBound(selection.threshold, new_salt(source=source))

    def charges(self, plan: Plan, threshold: Threshold | None) -> tuple[Charge, ...]:
        """The release, the test whether the items fit, and that a table may fail to decode; see `table_terms`."""
        release = super().charges(plan, threshold)
        return (*release, *table_charges(plan, "release", None if threshold is None else threshold.steps))

    def build(
        self, plan: Plan, selection: Selection, reading: KeySums, *, ledger: Ledger, source: Source
    ) -> Release:
        """Noise, then the bar, of a table whose items fit."""
        check_table_read(plan, selection.threshold.steps, reading, source=source)
        return super().build(plan, selection, reading, ledger=ledger, source=source)


def table_charges(plan: Plan, round_: str, steps: int | None) -> tuple[Charge, ...]:
    """The test whether a table's items fit, and that it may fail to decode.

    Args:
        plan: whose table it is.
        round_: the round of the table.
        steps: the most items of a user in it; None while that is not known.
    """
    parameters: dict[str, float | int | str] = {"capacity": plan.table_capacity}
    noise = None
    if steps is not None:
        parameters["room"] = table_room(plan, steps)
        noise = fit_noise(plan, steps)
    decoding = Charge(
        round=round_,
        name="table-decoding",
        parameters=parameters,
        sensitivity=1,
        norm="table",
        neighbours=plan.neighbours.value,
        epsilon=0.0,
        delta=decoding_delta(plan),
        loss=ApproximateLoss(),
    )
    if not is_tested(plan):
        return (decoding,)
    if noise is not None:
        parameters = parameters | {"scale": float(noise.scale), "largest_noise": noise.bar}
    fit = replace(
        decoding,
        name="table-fit",
        parameters=parameters,
        sensitivity=plan.step_range[1] if steps is None else steps,
        norm="keys",
        epsilon=plan.epsilon_select,
        delta=plan.delta_select if steps is None else fit_delta(plan),
    )
    return (fit, decoding)  # audited: room charged


def check_table_read(plan: Plan, steps: int, reading: KeySums, *, source: Source) -> None:
    """Fail unless the table's items are few enough, by a noisy comparison; see `table_terms`.

    A table that did not decode fails alike: the error and all that was reported before it are the same.
    """
    noise = fit_noise(plan, steps)
    too_many = False
    if noise is not None:
        (drawn,) = noise.draw(1, source=source.fork("table-fit")).tolist()
        too_many = len(reading.keys) + drawn > plan.table_capacity + noise.bar  # audited: room noised
    if reading.unread or too_many:
        raise TableTooSmall(capacity=plan.table_capacity)


def new_salt(*, source: Source) -> bytes:
    """A salt that is new for each run, and drawn only now that what users hold is fixed."""
    return source.fork("table-salt").words(SALT_BYTES // 8).astype("<u8").tobytes()
