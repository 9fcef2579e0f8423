"""Everything that reads bytes from a wire or a file, with valid inputs to start from and the errors it may raise."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from fuzz_files import file_targets
from fuzz_mutations import document_text, mutated, mutated_document, odd_value

from fedhist import (
    Charge,
    FedhistError,
    InvalidInput,
    Ledger,
    Plan,
    RoundFailed,
    SeededSource,
    SparsePopulation,
    run_rounds,
)
from fedhist.client import Policy
from tests.asking import first_request, release_at, select_request
from tests.builders import population_of
from tests.protocol.masking.conftest import Play
from tests.support.api import (
    TERMS_BYTES,
    BadKey,
    DecodeError,
    Envelope,
    MaskingTerms,
    Request,
    Settled,
    TableShape,
    Threshold,
    Total,
    admit,
    answer_population,
    decode,
    decode_keyed,
    decode_table,
    discovery_charges,
    encode,
    encode_table,
    save,
    to_total,
    vector_length,
)
from tests.support.api import MaskingKind as Kind
from tests.support.api import PolicyMemory as Memory
from tests.support.api import advance_session as advance
from tests.support.api import restore_state as restore
from tests.support.api import wire_module as wire

_STATE_TAG = b"fedhist/masking/1/state\x00"
SALT = bytes(range(32))
CLOSED: dict[str, Any] = {"users": 40, "items": 4, "candidates": 8, "max_threshold": 60}
MASKED: dict[str, Any] = {"masking": "secagg", "participants": 12}


@dataclass(frozen=True)
class Target:
    """Something that reads what others wrote.

    Args:
        name: what the table of counts calls it.
        draw: the next input.
        read: reads it; the result does not matter.
        refusals: the errors it may raise.
        share: how many inputs it gets for each one of the others; less than one for a slow one.
    """

    name: str
    draw: Callable[[Random], Any]
    read: Callable[[Any], object]
    refusals: tuple[type[FedhistError], ...]
    share: float = 1.0


def targets(folder: Path) -> list[Target]:
    """All of them; those that read files use this folder."""
    found = [*_codec_targets(), *_document_targets(), *_masking_targets(), _table_target(), _sums_target()]
    found += [Target(*parts) for parts in file_targets(folder)]
    assert len({target.name for target in found}) == len(found)
    return found


@lru_cache
def plans() -> dict[str, Plan]:
    """One plan of each kind of message."""
    found = {"users": 40, "domain": "open", "candidates": 8, "max_threshold": 60, "epsilon": 5.0}
    return {
        "closed": Plan(**CLOSED),
        "wide": Plan(**(CLOSED | {"users": 2**31})),
        "laplace": Plan(**CLOSED, mechanism="laplace", neighbours="replace-one"),
        "debiased": Plan(**CLOSED, debias="poisson"),
        "open": Plan(**found, release="truncated-laplace"),
        "masked": Plan(**CLOSED, **MASKED),
        "signed": Plan(**CLOSED, masking="secagg-signed", participants=12),
        "noisy": Plan(**CLOSED, **MASKED, noise_from="devices"),
        "discovered": Plan(**found, known_items="7\nx"),
        "discovered laplace": Plan(**found, mechanism="laplace"),
        "masked discovered": Plan(**found, **MASKED, max_items=9, max_item_bytes=8),
        "noisy discovered": Plan(**found, **MASKED, max_items=9, noise_from="devices"),
    }


@lru_cache
def population() -> SparsePopulation:
    """Ten users of four items with odd names."""

    counts = np.random.default_rng(1).poisson(2.0, (10, 4)) * 3
    return population_of(counts, labels=["a", "\ud800é", 7, ""])


def requests(plan: Plan) -> list[Request]:
    """The rounds of a plan."""
    steps = plan.at_steps(9 << plan.grid_bits).steps
    bounds = np.full(plan.items or 0, steps) if plan.per_item else None
    threshold = Threshold(steps=steps, bits=plan.grid_bits)
    if plan.discovers:
        found = Settled(keys=("a", 7, "x"), share=plan.discovery.shares[0])
        chosen = replace(found, mechanism="laplace") if plan.chooses_mechanism else found
        return [first_request(plan), select_request(plan, found), release_at(plan, threshold, settled=chosen)]
    return [first_request(plan), release_at(plan, threshold, bounds)]


def _codec_targets() -> Iterator[Target]:
    whole = population()
    for name in ("closed", "wide", "laplace", "debiased", "open", "discovered"):
        for request in requests(plans()[name]):
            contribution = answer_population(request, whole, source=SeededSource(1))
            seeds = [encode(contribution, request, whole.labels)]

            def read(data: bytes, request: Request = request) -> object:
                contribution, _ = decode(data, request)
                request.measurement.check(contribution.summed, contribution.users)
                return contribution

            yield Target(
                f"codec, {name} {request.round.value}", partial(mutated, seeds), read, (DecodeError,)
            )
    request = select_request(plans()["open"])
    contribution = answer_population(request, whole, source=SeededSource(1))
    dense = len(encode(contribution, request, whole.labels)) - 45 - 4 * request.measurement.shape.length
    seeds = [encode(contribution, request, whole.labels)[-dense:]]
    yield Target(
        "keyed codec", partial(mutated, seeds), lambda data: decode_keyed(data, 2, 9), (DecodeError,)
    )


def _document_targets() -> Iterator[Target]:
    documents = [plan.to_json() for plan in plans().values()]

    def plan_of(random: Random) -> Any:
        return mutated_document(random.choice(documents), random)

    def read_plan(document: Any) -> object:
        plan = Plan.from_json(document)
        return plan.digest, [request.measurement.shape.length for request in requests(plan)]

    yield Target("plan", plan_of, read_plan, (InvalidInput,))
    yield Target("request", _fields, _read_fields, (DecodeError,))

    memory = Memory()
    for number, plan in enumerate(plans().values()):
        envelope = Envelope(run=f"run{number}", request=first_request(plan))
        memory = admit(Policy(), memory, envelope)
    remembered = json.loads(memory.to_text())
    yield Target("memory text", partial(_memory_text, remembered), Memory.from_text, (DecodeError,))
    charge = {
        "round": "select", "name": "x", "parameters": {"a": 1}, "sensitivity": 1.0, "norm": "l2",
        "neighbours": "replace-one", "epsilon": 1.0, "delta": 1e-6, "loss": {"kind": "gaussian", "multiplier": 2.0},
        "private": True,
    }  # fmt: skip
    found = discovery_charges(plans()["discovered"])[0].to_json()
    charges = [charge, json.loads(json.dumps(found))]
    yield Target(
        "charge",
        lambda random: mutated_document(random.choice(charges), random),
        Charge.from_json,
        (InvalidInput,),
    )


def _memory_text(document: Any, random: Random) -> str:
    """A damaged memory, most often with a digest that fits it."""
    damaged = mutated_document(document, random)
    if isinstance(damaged, dict) and random.random() < 0.8:
        damaged.pop("digest", None)
        text = json.dumps(damaged, sort_keys=True)
        damaged["digest"] = hashlib.sha256(b"fedhist/1/memory\x00" + text.encode()).hexdigest()
    return document_text(damaged, random)


def _fields(random: Random) -> dict[str, Any]:
    """A request's fields with other values and types; the digest is most often right again."""
    plan = random.choice(list(plans().values()))
    request = random.choice(requests(plan))
    fields: dict[str, Any] = dict(Envelope(run="run", request=request).to_fields())
    for _ in range(random.randrange(1, 3)):
        name = random.choice([*fields, "other"])
        match random.randrange(6):
            case 0:
                fields.pop(name, None)
            case 1:
                fields[name] = random.choice(list(fields.values()))
            case 2 if isinstance(fields.get(name), list):
                fields[name] = [*fields[name], random.choice((2**63, -1, 10**30, True, 1.5, "x"))][-4:]
            case 3:
                fields[name] = random.randbytes(random.choice((0, 32)))
            case _:
                fields[name] = odd_value(random)
    if random.random() < 0.5:
        document = mutated_document(plan.to_json(), random)
        fields["plan"] = document_text(document, random)
        with suppress(Exception):  # what is no plan has no digest
            fields["plan-digest"] = Plan.from_json(json.loads(fields["plan"])).digest
    return fields


def _read_fields(fields: dict[str, Any]) -> object:
    envelope = Envelope.from_fields(fields)
    return envelope.fingerprint, envelope.request.measurement.shape


def _masking_targets() -> Iterator[Target]:
    for signed in (False, True):
        messages, states, terms = _masking_session(signed=signed)
        mode = "signed" if signed else "plain"
        for kind, seeds in messages.items():
            yield Target(
                f"masking {mode}, {kind.name.lower()}",
                partial(mutated, seeds),
                partial(_read_message, kind=kind, terms=terms),
                (DecodeError, BadKey),
            )
        saved = [save(state) for state in states]
        yield Target(f"masking {mode}, state", partial(_state, saved), restore, (DecodeError,))
        yield Target(
            f"masking {mode}, device",
            partial(_step, states, [data for seeds in messages.values() for data in seeds]),
            lambda step: advance(
                step[0], step[1], source=SeededSource(1), vector=np.zeros(4, dtype=np.int64)
            ),
            (),
        )
    terms_bytes = [_masking_session(signed=False)[2].to_bytes()]
    assert len(terms_bytes[0]) == TERMS_BYTES
    yield Target("masking, terms", partial(mutated, terms_bytes), MaskingTerms.from_bytes, (DecodeError,))


def _read_message(data: bytes, *, kind: Kind, terms: MaskingTerms) -> object:
    if kind is Kind.ADVERTISEMENT:
        return wire.read_advertisement(wire.body_of(data, kind, terms), terms)
    if kind in (Kind.SHARES, Kind.BOXES):
        return wire.decode_boxes(data, kind, terms)
    if kind in (Kind.COMPLAINTS, Kind.PEERS, Kind.SURVIVORS):
        return wire.decode_ids(data, kind, terms)
    readers: dict[Kind, Callable[[bytes, MaskingTerms], object]] = {
        Kind.ROSTER: wire.decode_roster,
        Kind.MASKED: wire.masked_body,
        Kind.CONFIRMATION: wire.decode_confirmation,
        Kind.UNMASK: wire.decode_unmask,
        Kind.OPENING: wire.decode_opening,
    }
    return readers[kind](data, terms)


@lru_cache
def _masking_session(*, signed: bool) -> tuple[dict[Kind, list[bytes]], list[Any], MaskingTerms]:
    """Every message of a small session by kind, and every state of one device."""
    cohort = Play(6, signed=signed, seed=5).advertise()
    seen, messages = [cohort.states[10]], {}
    while cohort.inbox:
        cohort.answer()
        seen.append(cohort.states[10])
    for _, _, message in cohort.sent:
        messages.setdefault(Kind(message[3]), []).append(message)
    return messages, seen, cohort.terms


def _state(saved: Sequence[bytes], random: Random) -> bytes:
    """A damaged state, most often with a digest that fits it."""
    content = mutated([data[:-32] for data in saved], random)
    if random.random() < 0.2:
        return content + saved[0][-32:]
    return content + hashlib.sha256(_STATE_TAG + content).digest()


def _step(states: Sequence[Any], messages: Sequence[bytes], random: Random) -> tuple[Any, bytes]:
    return random.choice(states), mutated(messages, random)


def _table_target() -> Target:
    shape = TableShape(capacity=6, label_bytes=8)
    labels = ["a", "\ud800é", 7, "", "12345678"]
    seeds = [
        encode_table(labels[:count], np.arange(1, count + 1), shape, salt=SALT).tobytes()
        for count in range(1, len(labels) + 1)
    ]
    seeds.append(
        (np.frombuffer(seeds[1], dtype=np.int64) + np.frombuffer(seeds[4], dtype=np.int64)).tobytes()
    )

    def draw(random: Random) -> Any:
        data = mutated(seeds, random)[: 8 * shape.length].ljust(8 * shape.length, b"\0")
        return np.frombuffer(data, dtype=random.choice((np.int64, np.uint64)))

    return Target("table", draw, lambda values: decode_table(values, shape, salt=SALT), (RoundFailed,))


def _sums_target() -> Target:
    """What a masked sum may be when a participant lies: any numbers, over a plausible number of users."""
    lied = [plans()[name] for name in ("masked", "signed", "noisy", "masked discovered")]
    masked = partial(Plan, **CLOSED, **MASKED)
    lied += [masked(selector=name) for name in ("dpsgd", "m-quantile")]
    lied += [masked(debias="poisson"), masked(mechanism="laplace", noise_from="devices")]

    def read(drawn: tuple[Plan, int]) -> object:
        plan, seed = drawn
        return run_rounds(plan, _LiedSums(Random(seed)), ledger=Ledger(), source=SeededSource(seed))

    return Target(
        "masked sums",
        lambda random: (random.choice(lied), random.getrandbits(32)),
        read,
        (RoundFailed,),
        0.05,
    )


@dataclass
class _LiedSums:
    """A transport whose sums are whatever some participant made of them."""

    random: Random
    simulated: bool = False

    def total(self, request: Request) -> Total:
        edges = (0, 1, -1, 2**31, -(2**31), 2**40, -(2**40), 2**62, 2**63 - 1, -(2**63))
        vector = np.array(
            [
                self.random.choice(edges) if self.random.random() < 0.5 else self.random.randrange(-99, 999)
                for _ in range(vector_length(request))
            ],
            dtype=np.int64,
        )
        vector[0] = self.random.randrange(1, request.plan.users + 1)
        return to_total(vector, request, participants=12)
