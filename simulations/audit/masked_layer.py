"""Audits of the masks: no secret or keystream is reused, sums near the limit are exact, nobody is counted twice.

The promise of masks rests on assumptions that no number of runs can test. These checks look for mistakes that would
break the promise under any assumptions: reused keystream, arithmetic that wraps around, a value that is added twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from fedhist.protocol.errors import FedhistError
from fedhist.protocol.histograms import Integers
from fedhist.protocol.masking import wire
from fedhist.protocol.masking.device_states import Advertised
from fedhist.protocol.masking.encoding import read_residues, to_integers, to_residues, width_for
from fedhist.protocol.masking.masked_vector import terms_of
from fedhist.protocol.masking.recovery import MaskedSum
from fedhist.protocol.masking.server_stage import Messages
from fedhist.protocol.masking.terms import MaskingTerms
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.wire.envelope import MASKED_STAGES, Envelope, new_run_name
from fedhist.server.masked import masked_sum
from fedhist.server.selection import Selection
from fedhist.server.steps import release_request
from fedhist.simulations.audit.findings import Check, Finding, Setting, exact, none_wrong
from fedhist.simulations.audit.worlds import crafted, requests_of
from fedhist.simulations.engines.masked_cohort import LocalDevices
from fedhist.simulations.engines.masked_in_process import masked_round

DEVICES = 6
_STAGES = [stage for stage in MASKED_STAGES if stage != "confirming"]
_CONSTANT = 1 << 40
"""Makes values wide: masks then have 64 bits, and equal words are no coincidence."""


@dataclass(frozen=True)
class Session:
    """What an auditor records of one masked sum: every device's secrets and masked vector, and the sum."""

    states: Sequence[Advertised] = field(repr=False)
    masked: Sequence[Integers] = field(repr=False)
    result: MaskedSum


def run_session(
    terms: MaskingTerms,
    vectors: Sequence[Integers],
    *,
    source_of: Callable[[int], Source],
    twice: tuple[int, str] | None = None,
    sends: Callable[[int, str, bytes], bytes] = lambda device, stage, message: message,
) -> Session:
    """A masked sum with the devices' and the server's own code.

    Args:
        terms: of the session.
        vectors: what each device adds.
        source_of: each device's randomness; number -1 is the server.
        twice: a device and a stage whose message reaches the server twice.
        sends: changes a device's message of a stage before it is sent.
    """
    sources = [source_of(device) for device in range(len(vectors))]
    devices = LocalDevices(
        terms, range(len(vectors)), vectors.__getitem__, source_of=lambda device, stage: sources[device]
    )
    states, masked = list[Advertised](), list[Integers]()

    def exchange(stage: str, messages: Messages | None) -> Messages:
        for device, answer in devices(stage, messages):
            state = devices.states[device]
            if isinstance(state, Advertised):
                states.append(state)
            if stage == "masking":
                residues = read_residues(wire.masked_body(answer, terms), terms.width)
                masked.append(residues.astype(np.uint64).view(np.int64))
            for _ in range(2 if twice == (device, stage) else 1):
                yield device, sends(device, stage, answer)

    result = masked_sum(terms, exchange, source=source_of(-1))
    return Session(states, masked, result)


_POWERS = [np.full(8, 10**power, dtype=np.int64) for power in range(DEVICES)]
"""One vector per device; their sum shows which devices are in it, and how often."""


def _terms(number: int, device: int) -> MaskingTerms:
    """The terms of a small session of its own."""
    session = bytes([number, device] * 16)
    return MaskingTerms(session=session, length=8, width=64, corrupt_share=0.0, dropout_share=0.2)


def _two_rounds(setting: Setting, *, repeat: bool) -> list[tuple[Session, list[Integers]]]:
    """The sessions of both rounds of one run, and the devices' inputs.

    With `repeat` every device starts both rounds from the same random state, like a device restored from a copy.
    """
    auditor = setting.auditor()
    plan = Plan(
        users=DEVICES, items=64, candidates=16, masking="secagg", participants=DEVICES, corrupt_share=0.0,
        dropout_share=0.2,
    )  # fmt: skip
    run = new_run_name(source=auditor.fork("run"))
    sessions = []
    for number, request in enumerate(requests_of(plan)):
        wide = replace(terms_of(Envelope(run=run, request=request)), length=64, width=64)
        vectors = [
            np.full(64, _CONSTANT * (device + 1) + number, dtype=np.int64) for device in range(DEVICES)
        ]
        streams = {
            device: auditor.fork("device", device, 0 if repeat else number) for device in range(-1, DEVICES)
        }
        sessions.append((run_session(wide, vectors, source_of=streams.__getitem__), vectors))
    return sessions


def fresh_secrets(setting: Setting) -> Finding:
    """No self-mask seed and no key is used in two rounds, or by two devices."""
    secrets: list[bytes] = []
    for session, _ in _two_rounds(setting, repeat=False):
        for state in session.states:
            secrets += [state.seed, state.mask_pair.secret, state.box_pair.secret]
    again = len(secrets) - len(set(secrets))
    return none_wrong(setting, again, len(secrets), "secrets of two rounds repeated")


def fresh_keystream(setting: Setting) -> Finding:
    """The masks of two rounds have no word in common, even if a device's random state was the same in both.

    The masks are the masked vectors, which the server sees, less the inputs, which are known here.
    """
    repeated = words = 0
    for repeat in (False, True):
        masks = [
            (masked - vector).tolist()
            for session, vectors in _two_rounds(setting, repeat=repeat)
            for masked, vector in zip(session.masked, vectors, strict=True)
        ]
        flat = [word for mask in masks for word in mask]
        words += len(flat)
        repeated += len(flat) - len(set(flat))
    return none_wrong(setting, repeated, words, "words of masks repeated")


def counted_once(setting: Setting) -> Finding:
    """A device whose message of some stage arrives twice is in the sum once, or nothing is released.

    Sessions without a repeat must succeed, and so must some with one, or nothing would have been compared.
    """
    wrong = cases = compared = 0
    for number, stage in enumerate(_STAGES):
        for device in range(DEVICES):
            auditor, terms = setting.auditor().fork("twice", number, device), _terms(number, device)
            cases += 1
            plain = run_session(terms, _POWERS, source_of=auditor.fork("plain").fork).result
            wrong += len(plain.included) != DEVICES
            try:
                result = run_session(terms, _POWERS, source_of=auditor.fork, twice=(device, stage)).result
            except FedhistError:
                continue
            compared += 1
            expected = np.sum([_POWERS[included] for included in result.included], axis=0)
            wrong += not np.array_equal(result.values, expected)
    return exact(
        setting,
        passed=wrong == 0 and compared > 0,
        detail=f"{wrong} of {compared} sums with a repeated answer wrong, {cases - compared} refused",
    )


def bad_boxes(setting: Setting) -> Finding:
    """One device that sends garbage boxes, or complains about everybody's, is left out by name, and nobody else is."""
    wrong = cases = 0
    for bad in range(DEVICES):
        for number, stage in enumerate(("sharing", "checking"), start=1):
            terms = _terms(number, bad)
            cases += 1
            try:
                source = setting.auditor().fork("bad", number, bad)
                result = run_session(
                    terms, _POWERS, source_of=source.fork, sends=partial(_spoilt, (bad, stage), terms)
                ).result
            except FedhistError:
                wrong += 1
                continue
            others = [other for other in range(DEVICES) if other != bad]
            named = [device for ids in result.left_out.values() for device in ids]
            right = list(result.included) == others and named == [bad]
            wrong += not (right and np.array_equal(result.values, sum(_POWERS[n] for n in others)))
    return none_wrong(setting, wrong, cases, "sums with one bad device stopped or wrong")


def _spoilt(liar: tuple[int, str], terms: MaskingTerms, device: int, stage: str, message: bytes) -> bytes:
    """The message, made bad if it is the liar's: a device and a stage."""
    if (device, stage) != liar:
        return message
    if stage == "sharing":
        boxes = wire.decode_boxes(message, wire.Kind.SHARES, terms)
        return wire.encode_boxes(
            wire.Kind.SHARES, [(receiver, bytes(len(box))) for receiver, box in boxes], terms
        )
    everybody = [other for other in range(DEVICES) if other != device]
    return wire.message(wire.Kind.COMPLAINTS, terms, wire.id_list(everybody))


def sums_at_the_limit(setting: Setting) -> Finding:
    """Sums just below and above the limit of 32 bits, and near 2^63, are exact."""
    wrong, cases = 0, 0
    for users in (2097, 2098, 4193, 4194, 4195):
        # A bound of 1,000 counts of 1,024 steps: 2,097 users stay below 2^31 steps and 2,098 do not.
        plan = Plan(
            users=users,
            items=2,
            mechanism="laplace",
            selector="fixed",
            threshold=1000.0,
            masking="secagg",
            participants=4,
            corrupt_share=0.0,
            dropout_share=0.0,
        )
        threshold = plan.fixed_threshold
        request = release_request(plan, Selection(threshold), source=setting.auditor())
        population = crafted([[(0, 5000)]] * users, 2)
        outcome = masked_round(request, population, source=setting.auditor().fork(users))
        expected = users * threshold.steps
        wrong += outcome.total.values.tolist() != [expected, 0]
        cases += 1
    for largest, users in ((1, 2**31 - 1), (2**31 - 1, 1), (2**30, 2), (3, 2**30), (2**40, 2**22)):
        width = width_for(largest, users)
        sums = np.array([largest * users, -largest * users], dtype=np.int64)
        try:
            wrong += not np.array_equal(to_integers(to_residues(sums, width)), sums)
        except FedhistError:
            wrong += 1
        cases += 1
    return none_wrong(setting, wrong, cases, "largest sums wrong")


CHECKS = (
    Check("masks, fresh secrets", fresh_secrets),
    Check("masks, fresh keystream", fresh_keystream),
    Check("masks, counted once", counted_once),
    Check("masks, bad boxes", bad_boxes),
    Check("masks, sums at the limit", sums_at_the_limit),
)
