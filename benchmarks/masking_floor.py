"""What a masked sum can't do without, each kind of work alone; and one device's steps as a ratio to that.

    python benchmarks/masking_floor.py

The floor of a masked sum is its key pairs, key agreements (X25519), derivations (HKDF-SHA256), masks (AES-256-CTR
keystream and numpy additions), shares (Shamir, split and rebuilt) and boxes (AES-256-GCM, sealed and opened), in bare
loops over the libraries, for exactly as many of each as the protocol needs. What it leaves out is what an
implementation adds: messages, checks, states and sessions.

A device computes its own side of every agreement. So its floor has k agreements for boxes and k for masks. A
simulation has both sides of a pair in one process, where the second computation gives the bytes of the first; its
floor has each pair's agreements once, and those of the server, which rebuilds the masks of the dead, on top.

A device's state is stored and read back before each step, as on Flower.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, fields
from itertools import cycle, islice
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedhist.protocol.masking import wire
from fedhist.protocol.masking.client import BOX_PURPOSE, Checked, DeviceState, advance, restore, save, start
from fedhist.protocol.masking.graph import GraphParameters, MaskingTerms, parameters_for
from fedhist.protocol.masking.shamir import PAIR_KEY_BYTES, reconstruct, seal_all, sending_key, split
from fedhist.protocol.masking.wire import Kind
from fedhist.protocol.privacy.randomness import SystemSource

WIDTH = 32


@dataclass
class Measured:
    """CPU seconds of all processes, seconds by the clock, and the result."""

    cpu: float
    wall: float
    value: Any


def cpu_seconds() -> float:
    """CPU time of this process and of the workers that ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def measure(function: Callable[[], Any], repeats: int = 1) -> Measured:
    """The best of some runs."""
    best: Measured | None = None
    for _ in range(repeats):
        cpu, wall = cpu_seconds(), time.perf_counter()
        value = function()
        found = Measured(cpu_seconds() - cpu, time.perf_counter() - wall, value)
        best = found if best is None or found.cpu < best.cpu else best
    assert best is not None  # noqa: S101 - at least one repeat
    return best


def terms_for(length: int, *, signed: bool = False) -> MaskingTerms:
    return MaskingTerms(session=os.urandom(32), length=length, width=WIDTH, signed=signed)


@dataclass(frozen=True)
class Work:
    """How often each kind of work is due."""

    key_pairs: int
    agreements: int
    derivations: int
    masks: int
    additions: int
    splits: int
    rebuilds: int
    seals: int
    opens: int

    @classmethod
    def of_device(cls, parameters: GraphParameters) -> Work:
        """One device's own part, if nobody drops out before it masks."""
        k = parameters.neighbours
        return cls(2, 2 * k, 2 * k + 1, k + 1, 0, 2, 0, k, k)

    @classmethod
    def of_cohort(cls, parameters: GraphParameters, *, sides: int) -> Work:
        """All devices and the server, if a tenth drop out after sharing; `sides` of each pair agree, one or both."""
        n, k = parameters.devices, parameters.neighbours
        dead = n // 10
        alive = n - dead
        # On average a dead device's neighbours are alive as often as any other device.
        mixed = round(dead * k * alive / (n - 1))
        among_alive = (alive * k - mixed) // 2
        boxes, masks = sides * n * k // 2, sides * among_alive + mixed
        return cls(
            key_pairs=2 * n + dead,
            agreements=boxes + masks + mixed,
            derivations=boxes + masks + mixed + 2 * alive,
            masks=alive * (1 + k) + alive + mixed,
            additions=alive,
            splits=2 * n,
            rebuilds=n,
            seals=n * k,
            opens=n * k,
        )

    def part(self, of: int) -> Work:
        """The share of one of so many processes."""
        return Work(*(-(-count // of) for count in astuple(self)))


def key_pairs(count: int) -> Callable[[], None]:
    """So many key pairs; this and the following prepare what they need outside the clock."""
    secrets = [os.urandom(32) for _ in range(64)]

    def run() -> None:
        for secret in islice(cycle(secrets), count):
            X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()

    return run


def agreements(count: int) -> Callable[[], None]:
    mine = X25519PrivateKey.generate()
    publics = [X25519PrivateKey.generate().public_key().public_bytes_raw() for _ in range(64)]

    def run() -> None:
        for public in islice(cycle(publics), count):
            mine.exchange(X25519PublicKey.from_public_bytes(public))

    return run


def derivations(count: int) -> Callable[[], None]:
    sha256, secret, info = SHA256(), os.urandom(32), os.urandom(140)

    def run() -> None:
        for _ in range(count):
            HKDF(sha256, 32, None, info).derive(secret)

    return run


def masks(count: int, additions: int, length: int) -> Callable[[], None]:
    zeros, buffer, mode = bytes(1 << 16), bytearray((1 << 16) + 16), modes.CTR(bytes(16))
    total, stream = np.zeros(length, np.uint32), np.frombuffer(buffer, np.uint32, (1 << 16) // 4)
    pieces = [total[begin : begin + len(stream)] for begin in range(0, length, len(stream))]
    steps = [(part, memoryview(zeros)[: part.nbytes], stream[: len(part)]) for part in pieces]
    keys = [os.urandom(32) for _ in range(64)]

    def run() -> None:
        for key in islice(cycle(keys), count):
            encryptor = Cipher(algorithms.AES(key), mode).encryptor()
            for part, blank, fresh in steps:
                encryptor.update_into(blank, buffer)
                np.add(part, fresh, out=part)
        for _ in range(additions):
            np.add(total, total, out=total)

    return run


def shares(splits: int, rebuilds: int, parameters: GraphParameters) -> Callable[[], None]:
    source, secret, t = SystemSource(), os.urandom(32), parameters.threshold
    held = split(secret, t, parameters.neighbours, source=source)

    def run() -> None:
        for _ in range(splits):
            split(secret, t, parameters.neighbours, source=source)
        for _ in range(rebuilds):
            reconstruct(range(1, t + 1), held[:t])

    return run


def boxes(seals: int, opens: int) -> Callable[[], None]:
    key, nonce, data, aad = os.urandom(32), os.urandom(12), os.urandom(66), os.urandom(70)
    sealed = AESGCM(key).encrypt(nonce, data, aad)

    def run() -> None:
        for _ in range(seals):
            AESGCM(key).encrypt(nonce, data, aad)
        for _ in range(opens):
            AESGCM(key).decrypt(nonce, sealed, aad)

    return run


def floor(
    work: Work, length: int, parameters: GraphParameters, *, cores: int = 1, repeats: int = 1
) -> dict[str, Measured]:
    """Each kind of work alone, dealt to as many processes as ours has."""
    mine = work.part(cores)
    kinds = {
        "key pairs": key_pairs(mine.key_pairs),
        "agreements": agreements(mine.agreements),
        "derivations": derivations(mine.derivations),
        "masks": masks(mine.masks, mine.additions, length),
        "shares": shares(mine.splits, mine.rebuilds, parameters),
        "boxes": boxes(mine.seals, mine.opens),
    }
    return {kind: measure(lambda run=run: _on(cores, run), repeats) for kind, run in kinds.items()}  # type: ignore[misc]  # bound now


def _on(cores: int, run: Callable[[], None]) -> None:
    if cores == 1:
        run()
        return
    processes = [multiprocessing.get_context("fork").Process(target=run) for _ in range(cores)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def in_words(parts: dict[str, Measured]) -> str:
    seconds = sum(part.cpu for part in parts.values())
    shown = "  ".join(f"{kind} {part.cpu:.3g}" for kind, part in parts.items())
    return f"floor {seconds:8.4g} s of CPU   [{shown}]"


def first_to_last(length: int, devices: int, source: SystemSource) -> Iterator[tuple[str, bytes, bytes]]:
    """The steps of one device among this many: each one's name, its stored state and the server's message."""
    terms = terms_for(length)
    parameters = parameters_for(devices, terms)
    me, others = 5, range(10, 10 + parameters.neighbours)
    state, advert = start(terms, me, source=source)
    peers = {peer: start(terms, peer, source=source) for peer in others}
    entries = [wire.roster_entry(peer, sent[wire.HEADER_BYTES :]) for peer, (_, sent) in peers.items()]
    my_key = wire.read_advertisement(advert[wire.HEADER_BYTES :], terms).box_key
    sealed = []
    for peer, (owner, _) in peers.items():
        (key,) = owner.box_pair.derive_for(BOX_PURPOSE, terms.digest, peer, [(me, my_key)], PAIR_KEY_BYTES)
        pair = tuple(split(secret, 1, 1, source=source)[0] for secret in (owner.mask_pair.secret, owner.seed))
        (box,) = seal_all(peer, [(me, sending_key(key, peer, me))], [pair], terms.digest, source=source)  # type: ignore[list-item]  # two shares
        sealed.append((peer, box[1]))
    vector = np.arange(length, dtype=np.int64)
    after: DeviceState = state
    for name, message in (
        ("sharing", wire.encode_roster(parameters, entries, terms)),
        ("checking", wire.encode_boxes(Kind.BOXES, sealed, terms)),
        ("masking", wire.encode_ids(Kind.PEERS, others, terms)),
        ("unmasking", wire.encode_unmask(list(others)[::10], b"", terms)),
    ):
        yield name, save(after), message
        after, answer = advance(after, message, source=source, vector=vector)
        if not answer:
            raise SystemExit(f"the device gave up while {name}")


def one_device(length: int, devices: int, repeats: int = 30) -> None:
    """Print what one device's steps take, and their ratio to its floor."""
    source, vector = SystemSource(), np.arange(length, dtype=np.int64)
    parameters = parameters_for(devices, terms_for(length))
    fresh = terms_for(length)
    steps = {"advertising": measure(lambda: save(start(fresh, 5, source=source)[0]), repeats)}

    def step(stored: bytes, message: bytes) -> None:
        state = restore(stored)
        due = vector if isinstance(state, Checked) else None
        save(advance(state, message, source=source, vector=due)[0])

    for name, stored, message in first_to_last(length, devices, source):
        steps[name] = measure(lambda a=stored, b=message: step(a, b), repeats)  # type: ignore[misc]  # bound now
    least = floor(Work.of_device(parameters), length, parameters, repeats=repeats)
    ours, bare = (1e3 * sum(part.cpu for part in parts.values()) for parts in (steps, least))
    shown = "  ".join(f"{name} {1e3 * part.cpu:.2f}" for name, part in steps.items())
    alone = "  ".join(f"{name} {1e3 * part.cpu:.2f}" for name, part in least.items())
    print(
        f"one device   n = {devices:>6,}  d = {length:>7,}  k/t {parameters.neighbours}/{parameters.threshold}"
        f"  CPU {ours:6.2f} ms [{shown}]\n"
        f"  floor {bare:.2f} ms [{alone}]\n"
        f"  {ours / bare:.2f} times the floor (target: at most 1.5)"
    )


def main() -> None:
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    once = Work(*[2000] * len(fields(Work)))
    parameters = parameters_for(10_000, terms_for(1))
    for kind, found in floor(once, 10_000, parameters, repeats=3).items():
        print(f"{kind:<12} {1e6 * found.cpu / 2000:7.1f} microseconds")
    print("  (shares: split and rebuilt; boxes: sealed and opened; masks: of 10,000 values)\n")
    for length in (10_000, 100_000):
        one_device(length, 10_000)


if __name__ == "__main__":
    main()
