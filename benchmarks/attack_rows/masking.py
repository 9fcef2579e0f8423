"""Masked sums: servers that lie to devices, directories with the attacker's keys, and participants that spoil them."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from functools import cache
from typing import Any

import numpy as np

from attack_rows import attack
from fedhist.client.policy import Memory, Policy, admit
from fedhist.protocol.errors import FedhistError, Refused, RoundFailed
from fedhist.protocol.histograms import Integers
from fedhist.protocol.masking import wire
from fedhist.protocol.masking.client import Checked, Shared, advance, start
from fedhist.protocol.masking.cohort import devices_to_leave_out
from fedhist.protocol.masking.crypto import KEY_BYTES, LOW_ORDER, Identity
from fedhist.protocol.masking.graph import MaskingTerms, all_neighbours, parameters_for, ring_of, share_of
from fedhist.protocol.masking.wire import Kind, MaskingStage, ShareKind
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.protocol.wire.envelope import Envelope
from fedhist.server.masked import masked_sum
from tests.asking import first_request
from tests.lying_server import fewer_than_promised, random_lies, terms_for, two_lists


@attack("under signed masks a server shows devices rosters, peers and lists of survivors as it likes")
def many_faces(quick: bool) -> tuple[int, int]:
    seeds = range(20 if quick else 500)
    servers = [two_lists(), fewer_than_promised()]
    broken = sum(bool(server.stolen) for server in servers)
    return len(servers) + len(seeds), broken + sum(bool(random_lies(seed).stolen) for seed in seeds)


@cache
def identities(devices: int) -> dict[int, Identity]:
    """Devices 10, 11, ..., each with the directory of all."""
    secrets = {
        10 + number: SeededSource(number).fork("identity").words(4).tobytes() for number in range(devices)
    }
    known = {device: Identity(secret, {}).public for device, secret in secrets.items()}
    return {device: Identity(secret, known) for device, secret in secrets.items()}


def advertised(terms: MaskingTerms, device: int, identity: Identity, seed: int) -> tuple[Any, bytes]:
    """Its first state, and the body of what it sends."""
    source = SeededSource(seed).fork("advertises", device)
    state, message = start(terms, device, source=source, identity=identity)
    return state, message[wire.HEADER_BYTES :]


@attack("a server pads a signed roster with keys that no device of the directory made for it in this session")
def padded_roster(quick: bool) -> tuple[int, int]:
    known = identities(12)
    terms, others = terms_for(12, 0.05, 0.1), sorted(known)[1:]
    before = terms_of_session(terms, b"before" + bytes(26))
    tries = joined = 0
    for seed in range(20 if quick else 400):
        dice = random.Random(seed)
        state, _ = advertised(terms, 10, known[10], seed)
        bodies = {device: advertised(terms, device, known[device], seed)[1] for device in others}
        victim, twin = dice.sample(others, 2)
        stranger = Identity(dice.randbytes(32), {})
        low = dice.choice(sorted(LOW_ORDER))
        signed_low = low + bodies[victim][32:96]
        for forged in (
            {victim: advertised(terms, victim, stranger, seed)[1]},
            {victim: advertised(before, victim, known[victim], seed)[1]},
            {victim: bodies[twin]},
            {victim: bodies[twin][:96] + bodies[victim][96:]},
            {victim: None, dice.getrandbits(63) + 100: advertised(terms, 99, stranger, seed)[1]},
            {victim: None, 10: bodies[victim]},
            {victim: signed_low + bodies[victim][96:]},
        ):
            shown = {one: body for one, body in (bodies | forged).items() if body is not None}
            entries = [wire.roster_entry(one, shown[one]) for one in sorted(shown)]
            roster = wire.encode_roster(parameters_for(12, terms), entries, terms)
            after, _ = advance(state, roster, source=SeededSource(seed))
            tries, joined = tries + 1, joined + isinstance(after, Shared)
    return tries, joined


def terms_of_session(terms: MaskingTerms, session: bytes) -> MaskingTerms:
    return MaskingTerms.from_bytes(session + terms.to_bytes()[len(session) :])


@attack("a server asks the part of a directory in which all corrupt devices are, under a plan of its choice")
def chosen_cohort(quick: bool) -> tuple[int, int]:
    """A node of default settings: all that it takes for corrupt, a twentieth of its directory, are among those asked.

    A success is a plan that it admits, and under which two lists of survivors can be signed, or less noise is honest
    than was booked.
    """
    tries = broken = 0
    for seed in range(50 if quick else 2_000):
        dice = random.Random(seed)
        keys = dice.randrange(20, 400)
        asked = dice.randrange(3, keys + 1)
        corrupt = min(share_of(keys, 0.05), asked)
        try:
            plan = Plan(
                users=1_000,
                items=8,
                max_threshold=60,
                masking="secagg-signed",
                noise_from=dice.choice(["server", "devices"]),
                participants=asked,
                corrupt_share=dice.choice([0.0, 0.05, 0.1, round(dice.uniform(0, 0.3), 3)]),
                dropout_share=round(dice.uniform(0, 0.3), 3),
            )
        except FedhistError:
            continue
        tries += 1
        try:
            admit(
                Policy().for_device(directory=keys),
                Memory(),
                Envelope(run="one", request=first_request(plan)),
            )
        except Refused:
            continue
        masks = plan.masks
        for devices in range(masks.minimum_survivors, asked + 1):
            terms = terms_for(asked, plan.corrupt_share, plan.dropout_share)
            threshold = parameters_for(devices, terms).threshold
            if 2 * (threshold - corrupt) <= devices - corrupt:
                broken += 1
                break
        else:
            broken += masks.minimum_survivors - corrupt < masks.noise_shares
    return tries, broken


@attack("a server draws the graph of plain masks again until corrupt devices surround one, or cut it in two")
def drawn_again(quick: bool) -> tuple[int, int]:
    tries = broken = 0
    for devices, share, silent in ((100, 0.05, 0.1), (300, 0.1, 0.2), (1_000, 0.05, 0.1), (1_000, 0.2, 0.3)):
        terms = MaskingTerms(bytes(32), 1, 32, share, silent, participants=devices)
        links = parameters_for(devices, terms)
        bad = np.arange(devices) < share_of(devices, share)
        gone = np.arange(devices) < share_of(devices, share) + share_of(devices, silent)
        for seed in range(50 if quick else 5_000):
            ring = ring_of(devices, seed.to_bytes(32, "little"), terms.digest)
            tries += 1
            surrounded = bad[all_neighbours(links, ring)].sum(axis=1).max() >= links.threshold
            broken += surrounded or falls_apart(gone[ring], links.neighbours // 2)
    return tries, broken


def falls_apart(gone: np.ndarray[Any, np.dtype[np.bool_]], half: int) -> bool:
    """Whether two stretches of the ring have `half` or more in a row removed: then the rest is in two parts."""
    (left,) = np.nonzero(~gone)
    gaps = np.diff(np.append(left, left[0] + len(gone))) - 1
    return bool((gaps >= half).sum() >= 2)


@attack("participants complain of boxes that do open, to get more honest ones left out than is said")
def false_complaints(quick: bool) -> tuple[int, int]:
    """Every choice of complaints that is at random, or better for the attacker than the last one."""
    tries = broken = 0
    for seed in range(20 if quick else 300):
        dice = random.Random(seed)
        liars = dice.randrange(1, 7)
        devices = dice.randrange(liars + 3, 40)
        most = sum(liars / count for count in range(1, liars + 1))
        chance = dice.choice([0.02, 0.1, 0.3, 0.8])
        honest = range(liars, devices)
        best, worst = [{one for one in honest if dice.random() < chance} for _ in range(liars)], -1
        for _ in range(30):
            claims = [set(one) for one in best]
            claims[dice.randrange(liars)] ^= set(dice.sample(honest, dice.choice([1, 1, 2])))
            out = sum(one >= liars for one in devices_to_leave_out(dict(enumerate(claims))))
            tries += 1
            broken += out > most
            if out >= worst:
                best, worst = claims, out
    return tries, broken


class Spoilers:
    """An exchange with a cohort some of whom send anything, and see that the server sends them what it should."""

    def __init__(self, terms: MaskingTerms, devices: int, liars: Collection[int], seed: int) -> None:
        self.terms, self.dice = terms, random.Random(seed)
        self.ids = range(10, 10 + devices)
        self.identities = identities(devices) if terms.signed else {}
        self.source = SeededSource(seed)
        self.states: dict[int, Any] = {}
        # Who lies early is found out early, so a liar has one or two stages for it. What it adds to the sum is its own
        # choice: a wrong number there is no success.
        stages = [stage for stage in MaskingStage if stage is not MaskingStage.MASKING]
        self.lies = {liar: self.dice.sample(stages, self.dice.choice([1, 2])) for liar in sorted(liars)}

    def vector(self, device: int) -> Integers:
        """What a device has."""
        return np.arange(self.terms.length, dtype=np.int64) * device - 9

    def __call__(self, stage: str, messages: Any) -> Iterator[tuple[int, bytes]]:
        """The answers of all devices."""
        for device, message in messages or ((device, b"") for device in self.ids):
            source = self.source.fork(stage, device)
            if stage == MaskingStage.ADVERTISING:
                found = start(self.terms, device, source=source, identity=self.identities.get(device))
            else:
                state = self.states[device]
                vector = self.vector(device) if isinstance(state, Checked) else None
                found = advance(state, message, source=source, vector=vector)
            self.states[device], answer = found
            if answer and stage in self.lies.get(device, ()):
                answer = self.spoiled(stage, answer)
            yield device, answer

    def spoiled(self, stage: str, answer: bytes) -> bytes:
        """Something else, or nothing."""
        dice, terms = self.dice, self.terms
        if dice.random() < 0.15:
            return b""
        if stage == MaskingStage.CHECKING:
            accused = sorted(dice.sample(self.ids, dice.randrange(len(self.ids))))
            return wire.encode_ids(Kind.COMPLAINTS, accused, terms)
        if stage == MaskingStage.SHARING:
            boxes = wire.decode_boxes(answer, Kind.SHARES, terms)
            swapped = [(to, dice.choice([box, box[:-1] + b"?", dice.choice(boxes)[1]])) for to, box in boxes]
            return wire.encode_boxes(Kind.SHARES, swapped, terms)
        if stage == MaskingStage.UNMASKING:
            opened = [
                (one.owner, ShareKind(one.kind), dice.choice([one.share, dice.randbytes(32) + b"\x00"]))
                for one in wire.decode_opening(answer, terms)
            ]
            return wire.encode_opening(opened, terms)
        places = set(range(wire.HEADER_BYTES, len(answer)))
        if stage == MaskingStage.ADVERTISING:
            # Another key for masks than its own is one more way to add a number of its choice.
            places -= set(range(wire.HEADER_BYTES + KEY_BYTES, wire.HEADER_BYTES + 2 * KEY_BYTES))
        place = dice.choice(sorted(places))
        return answer[:place] + dice.randbytes(1) + answer[place + 1 :]


@attack("participants send what they like at every stage of a masked sum, to have a wrong one released")
def spoiled_sums(quick: bool) -> tuple[int, int]:
    """A success is a wrong sum, one over fewer than agreed, or an honest device left out beyond the bound."""
    tries = broken = 0
    for seed in range(30 if quick else 400):
        dice = random.Random(seed)
        signed, devices = dice.random() < 0.5, dice.randrange(8, 16)
        liars = frozenset(dice.sample(range(10, 10 + devices), dice.choice([1, 2])))
        terms = MaskingTerms(
            bytes(32), 5, 32, 0.2, 0.2, devices - devices // 3, signed=signed, participants=devices
        )
        exchange, tries = Spoilers(terms, devices, liars, seed), tries + 1
        directory = identities(devices)[10].directory if signed else None
        try:
            result = masked_sum(terms, exchange, source=SeededSource(seed), directory=directory)
        except RoundFailed:
            continue
        expected = sum((exchange.vector(one) for one in result.included), np.zeros(5, dtype=np.int64))
        missing = set(exchange.ids) - set(result.included) - liars
        bound = int(sum(len(liars) / count for count in range(1, len(liars) + 1)))
        few = len(result.included) < terms.minimum_survivors
        broken += few or len(missing) > bound or not np.array_equal(result.values, expected)
    return tries, broken
