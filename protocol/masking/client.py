"""A device's side of one masked sum: `start`, then `advance` for each message of the server.

    state, message = start(terms, me, source=source)           # send it
    state, message = advance(state, roster, source=source)     # send it, and so on; with the vector when Checked

*What a message is bound to.* The advertisement (its header, the commitment and in signed mode the signature) is bound
to the device and to the session: to the run, the plan and the round. All that follows is bound to the digest of the
terms, so to the session and to what is summed: the keys of boxes and masks, the self-mask, the boxes' associated data,
the graph, the confirmed survivors, the header of every later message. In signed mode all of these but the graph and the
headers are bound to the digest of the roster as well.

1. *Other terms for some devices*, another threshold, say. Let i and j be honest with terms T_i != T_j. Their keys for
   boxes differ, so no box of i opens at j or the other way round: neither holds a share of the other's secrets, and
   each masks only with those whose boxes it opened. They are strangers, as if the other had not advertised. In signed
   mode, where t of n neighbours must be left and 2t > n + c, two such classes of one roster can't both go on: with the
   c corrupt devices in both, they would need 2 (t + 1) - c > n devices. Confirmations sign the digest of the terms too.
2. *Replays.* In signed mode an advertisement is accepted in one round of one run of one plan, from one device. In plain
   mode the server hands out the keys, and whatever they are bound to, nothing keeps it from handing out its own.
3. *Keys used twice.* A device answers one session for each run and round (`client/policy.py`), and what keeps its state
   between messages gives it away first.

*Two rosters, and two lists of survivors* (signed mode). The roster that a device is shown names all others, and what
it names is in the keys of its boxes and masks and in what it signs. Let n be on a roster, b <= c of them corrupt, and
let t of their shares rebuild a secret. Corrupt devices may be on many rosters, and sign whatever they like.

1. *Shown different rosters, honest devices are strangers*, as in 1 above: no box between them opens. So the shares of
   an honest device's secrets are with its class, the honest devices that were shown its roster, and with corrupt ones.
2. *A class opens one list.* Shares are opened for a list that t of the roster signed, so t - b honest ones, each of
   which signs one list. Two lists would need 2 (t - b) <= n - b, but 2t > n + c. So the class opens shares of the
   seeds of those on its list A, and of the mask secrets of its other peers. As b < t, no honest device's secrets are
   both rebuilt.
3. *A list has one sum.* Who signs A has masked with everybody on it. Any other honest device on A has masked with t of
   the roster, so with t - b honest ones, one of whom signed A, since 2 (t - b) > n - b. Nobody on A gives away its
   mask secret, so its honest devices are held together by masks that the server doesn't know: it learns their sum, and
   nothing of a part of them. A has `minimum_survivors` devices or more, and at least that less b are honest.
4. *Two classes* may come to a sum each, over different honest devices, as if each had had a session of its own. Of N
   devices of which d may fall silent and N - d must survive even that is impossible: t <= N - 1 - d, or there is no
   graph for N, so 2 (N - d - c) > N - c honest devices would have to take part.

If the roster were in the signatures alone, 1 would fail, and 3 with it: a device alive to those who know a small
roster, and dead to those who know a large one, has its mask secret rebuilt and its input taken for one of A's. Of 40
devices, 5 corrupt and 16 allowed to fall silent, 14 would be seen as a sum where 19 honest ones are promised
(tests/protocol/masking/test_two_rosters.py).

Whatever is wrong with a server's message leads to `Aborted` and an empty answer, never to an exception: a caller that
stores the state it got can't be made to try again. Only the caller's own mistakes raise.

## States

The states of a device in one masked sum. Each holds what its next step needs, and no secret longer than that.

Advertised ──roster──▶ Shared ──boxes──▶ Checked ──peers, vector──▶ Masked ─────────unmask────────▶ Finished
                                                                      └─survivors─▶ Confirmed ─unmask─▲   signed mode
any ──anything that is wrong──▶ Aborted, which answers nothing

## A state as bytes

A device's state as bytes, to be kept between two messages.

    magic "FS" · version u8 · kind u8 · me u64 · terms · what the state holds · SHA-256 of all before

A state whose terms are not known yet has the session in their place.

The bytes hold the session's secrets in the clear: keep them where only the device can read them, and only the newest.
The digest notices damage, not malice: anyone who can write a device's memory owns the device.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeVar

from fedhist.protocol.errors import BadKey, DecodeError, InvalidInput
from fedhist.protocol.histograms import Integers
from fedhist.protocol.masking import wire
from fedhist.protocol.masking.crypto import (
    KEY_BYTES,
    MAX_ID,
    Derive,
    Identity,
    KeyPair,
    advertisement_text,
    check_public_key,
    commit,
    derive,
    draw_bytes,
    roster_digest,
    session_context,
    survivors_text,
    verify,
)
from fedhist.protocol.masking.graph import (
    MAX_DEVICES,
    TERMS_BYTES,
    GraphParameters,
    MaskingTerms,
    parameters_for,
)
from fedhist.protocol.masking.shamir import (
    PAIR_KEY_BYTES,
    SHARE_BYTES,
    SharePair,
    open_all,
    seal_all,
    sending_key,
    split,
)
from fedhist.protocol.masking.vectors import MaskAdder, residue_bytes, to_residues
from fedhist.protocol.masking.wire import Advertisement, Kind, ShareKind
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.wire.keyed_codec import Reader

BOX_PURPOSE = b"box"
MASK_PURPOSE = b"mask"
STATE_VERSION = 3
_MAGIC = b"FS"
_TAG = b"fedhist/masking/1/state\x00"
_DIGEST_BYTES = 32
_HEAD = struct.Struct("<2sBBQ")
_PARAMETERS = struct.Struct("<III")
_COUNT = struct.Struct("<I")
_ID = struct.Struct("<Q")
_KEY_OF = struct.Struct(f"<Q{KEY_BYTES}s")
_KEYS_OF = struct.Struct(f"<Q{KEY_BYTES}s{KEY_BYTES}s")
_SHARES_OF = struct.Struct(f"<Q{SHARE_BYTES}s{SHARE_BYTES}s")
_KEY_AND_SHARES_OF = struct.Struct(f"<Q{KEY_BYTES}s{SHARE_BYTES}s{SHARE_BYTES}s")


class AbortReason(StrEnum):
    """Why a device gave up; the whole vocabulary, so that no reason can carry data."""

    MALFORMED = "malformed"
    UNEXPECTED = "unexpected"
    UNSAFE_GRAPH = "unsafe-graph"
    WRONG_NEIGHBOURS = "wrong-neighbours"
    BAD_KEY = "bad-key"
    REPEATED_KEY = "repeated-key"
    BAD_SIGNATURE = "bad-signature"
    STRANGER = "stranger"
    TOO_FEW = "too-few"
    WRONG_SURVIVORS = "wrong-survivors"


@dataclass(frozen=True, kw_only=True)
class _Session:
    terms: MaskingTerms
    me: int


@dataclass(frozen=True, kw_only=True)
class _Member(_Session):
    """`fewest` is the device's own floor: the fewest participants that it accepts, whatever the terms say."""

    identity: Identity | None = field(repr=False, default=None)
    fewest: int = 0


@dataclass(frozen=True, kw_only=True)
class Advertised(_Member):
    """The public keys are out."""

    box_pair: KeyPair = field(repr=False)
    mask_pair: KeyPair = field(repr=False)
    seed: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Shared(_Member):
    """The neighbours are known, and each has a share of both secrets under way. The box secret is forgotten."""

    parameters: GraphParameters
    mask_pair: KeyPair = field(repr=False)
    seed: bytes = field(repr=False)
    mask_keys: Mapping[int, bytes] = field(repr=False)
    receiving_keys: Mapping[int, bytes] = field(repr=False)
    roster: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Checked(_Member):
    """The boxes are opened, and the server knows which did not open. The keys of the boxes are forgotten.

    `mask_keys` and `shares` are those of the senders whose boxes opened.
    """

    parameters: GraphParameters
    mask_pair: KeyPair = field(repr=False)
    seed: bytes = field(repr=False)
    mask_keys: Mapping[int, bytes] = field(repr=False)
    shares: Mapping[int, SharePair] = field(repr=False)
    roster: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Masked(_Member):
    """The masked vector is out. Left are shares of those it was masked with; the device's own secrets are forgotten."""

    parameters: GraphParameters
    shares: Mapping[int, SharePair] = field(repr=False)
    roster: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Confirmed(Masked):
    """The one set of survivors that this device will ever unmask is signed."""

    survivors: tuple[int, ...] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Finished(_Session):
    """Nothing is left to say, and nothing secret is left."""


@dataclass(frozen=True, kw_only=True)
class Aborted(_Session):
    """The device gave up and forgot everything."""

    reason: AbortReason


DeviceState = Advertised | Shared | Checked | Masked | Confirmed | Finished | Aborted
"""Where a device is in its session."""


_REASONS = tuple(AbortReason)
_KINDS: tuple[type[DeviceState], ...] = (Advertised, Shared, Checked, Masked, Confirmed, Finished, Aborted)
"""The place of a state here is its kind in the bytes."""
_StateT = TypeVar("_StateT", Shared, Checked, Masked, Confirmed)


class _Abort(Exception):
    """Leaves a transition; `advance` turns it into the state."""

    def __init__(self, reason: AbortReason) -> None:
        self.reason = reason
        super().__init__(reason.value)


def start(
    terms: MaskingTerms, me: int, *, source: Source, identity: Identity | None = None, fewest: int = 0
) -> tuple[Advertised, bytes]:
    """Fresh keys and a fresh self-mask seed, and the message that advertises them.

    Args:
        terms: what both sides agree on.
        me: the device's id.
        source: for the keys and the seed.
        identity: in signed mode, the device's signing key and the directory of all.
        fewest: the device's own floor. It gives up when it sees fewer participants than that, itself included.
    """
    if not 0 <= me <= MAX_ID:
        raise InvalidInput("the device's id is not an unsigned 64-bit number", allowed=f"0 to {MAX_ID}")
    if terms.signed != (identity is not None):
        raise InvalidInput(
            f"there is {'no identity in' if terms.signed else 'an identity outside of'} signed mode",
            allowed="an identity in signed mode, and only there",
            code="wrong-identity",
        )
    if not 0 <= fewest <= MAX_DEVICES:
        raise InvalidInput(
            f"the device's floor is {fewest} participants", allowed=f"0 to {MAX_DEVICES}", code="bad-floor"
        )
    state = Advertised(
        terms=terms,
        me=me,
        box_pair=KeyPair.draw(source=source),
        mask_pair=KeyPair.draw(source=source),
        seed=draw_bytes(KEY_BYTES, source=source),  # audited: self-mask
        identity=identity,
        fewest=fewest,
    )
    return state, wire.advertisement(terms.session, _own_advertisement(state))


def advance(
    state: DeviceState,
    message: bytes,
    *,
    source: Source,
    vector: Integers | None = None,
    derive_for: Derive = KeyPair.derive_for,
) -> tuple[DeviceState, bytes]:
    """One step: the next state, and the answer to send.

    Args:
        state: where the device is.
        message: the server's.
        source: for what the step draws.
        vector: what the device adds. It is read in the state Checked, and needed there.
        derive_for: how keys are agreed on. A device has no reason to change it.
    """
    if isinstance(state, Checked) and (vector is None or len(vector) != state.terms.length):
        raise InvalidInput(
            f"the vector to mask {'is missing' if vector is None else f'has {len(vector)} values'}",
            allowed=f"{state.terms.length} values once the server has named the peers",
        )
    try:
        return _following(state, message, source, vector, derive_for)
    except (_Abort, DecodeError, BadKey) as problem:
        return _aborted(state, problem), b""


def given_up(state: Checked, message: bytes) -> Aborted | None:
    """The end of a session whose peers are not as they should be; None if the device goes on, and its vector is due."""
    try:
        _peers(state, message)
    except (_Abort, DecodeError) as problem:
        return _aborted(state, problem)
    return None


def _aborted(state: DeviceState, problem: _Abort | DecodeError | BadKey) -> Aborted:
    match problem:
        case _Abort(reason=reason):
            pass
        case DecodeError():
            reason = AbortReason.MALFORMED
        case _:
            reason = AbortReason.BAD_KEY
    return Aborted(terms=state.terms, me=state.me, reason=reason)


def _following(
    state: DeviceState, message: bytes, source: Source, vector: Integers | None, derive_for: Derive
) -> tuple[DeviceState, bytes]:
    following: tuple[DeviceState, bytes]
    match state:
        case Advertised():
            following = _share(state, message, source, derive_for)
        case Shared():
            following = _check(state, message)
        case Checked() if vector is not None:
            following = _mask(state, message, vector, derive_for)
        case Confirmed():
            following = _open_confirmed(state, message)
        case Masked() if state.terms.signed:
            following = _confirm(state, message)
        case Masked():
            following = _open(state, wire.decode_unmask(message, state.terms).dead)
        case Aborted():
            following = state, b""
        case _:
            raise _Abort(AbortReason.UNEXPECTED)
    return following


def _next(kind: type[_StateT], state: Advertised | Shared | Checked | Masked, **new: Any) -> _StateT:
    """The following state: what is new, and what both have. All else is forgotten."""
    return kind(**new, **{f.name: getattr(state, f.name) for f in fields(kind) if f.name not in new})


def _share(state: Advertised, message: bytes, source: Source, derive_for: Derive) -> tuple[Shared, bytes]:
    """Check the neighbours, split both secrets among them, and seal each one's shares."""
    terms, me = state.terms, state.me
    parameters, neighbours = wire.decode_roster(message, terms)
    _check_parameters(parameters, terms, state.fewest)
    if len(neighbours) != parameters.neighbours or me in neighbours:
        raise _Abort(AbortReason.WRONG_NEIGHBOURS)
    _check_keys(state, neighbours)
    roster = _check_signatures(state, state.identity, neighbours) if state.identity else b""
    context = session_context(terms.digest, roster)

    count, threshold = parameters.neighbours, parameters.threshold
    secret_shares = split(state.mask_pair.secret, threshold, count, source=source)
    seed_shares = split(state.seed, threshold, count, source=source)
    box_keys = [(peer, advert.box_key) for peer, advert in neighbours.items()]
    pair_keys = derive_for(state.box_pair, BOX_PURPOSE, context, me, box_keys, PAIR_KEY_BYTES)
    keys = dict(zip(neighbours, pair_keys, strict=True))
    sealed = seal_all(
        me,
        [(peer, sending_key(key, me, peer)) for peer, key in keys.items()],
        list(zip(secret_shares, seed_shares, strict=True)),
        context,
        source=source,
    )
    shared = _next(
        Shared,
        state,
        parameters=parameters,
        mask_keys={peer: advert.mask_key for peer, advert in neighbours.items()},
        receiving_keys={peer: sending_key(key, peer, me) for peer, key in keys.items()},
        roster=roster,
    )
    return shared, wire.encode_boxes(Kind.SHARES, sealed, terms)


def _check(state: Shared, message: bytes) -> tuple[Checked, bytes]:
    """Open the boxes, keep the shares in them, and name the senders of those that do not open.

    Whether a box opens depends on its sender and on the server that carried it, and on no user's data.
    """
    terms, me, context = state.terms, state.me, session_context(state.terms.digest, state.roster)
    boxes = wire.decode_boxes(message, Kind.BOXES, terms)
    if any(sender not in state.receiving_keys for sender, _ in boxes):
        raise _Abort(AbortReason.STRANGER)
    _need(state, len(boxes))
    shares, bad = open_all(me, state.receiving_keys, boxes, context)
    mask_keys = {peer: state.mask_keys[peer] for peer in shares}
    checked = _next(Checked, state, mask_keys=mask_keys, shares=shares)
    return checked, wire.encode_ids(Kind.COMPLAINTS, bad, terms)


def _mask(state: Checked, message: bytes, vector: Integers, derive_for: Derive) -> tuple[Masked, bytes]:
    """Mask the vector with exactly the peers that the server names, and keep shares of no others."""
    terms, me, context = state.terms, state.me, session_context(state.terms.digest, state.roster)
    shares = {peer: state.shares[peer] for peer in _peers(state, message)}

    residues = to_residues(vector, terms.width)
    adder = MaskAdder(residues)
    adder.add(self_mask_key(state.seed, context, me))
    peers = [(peer, state.mask_keys[peer]) for peer in shares]
    keys = derive_for(state.mask_pair, MASK_PURPOSE, context, me, peers, KEY_BYTES)
    for peer, key in zip(shares, keys, strict=True):
        if me < peer:
            adder.add(key)
        else:
            adder.subtract(key)
    masked = _next(Masked, state, shares=shares)
    return masked, wire.message(Kind.MASKED, terms, residue_bytes(residues))


def _peers(state: Checked, message: bytes) -> tuple[int, ...]:
    """The peers that the server names."""
    named = wire.decode_ids(message, Kind.PEERS, state.terms)
    if not state.shares.keys() >= set(named):
        raise _Abort(AbortReason.STRANGER)
    _need(state, len(named))
    return named


def _confirm(state: Masked, message: bytes) -> tuple[Confirmed, bytes]:
    """Sign the set of survivors: the first one that this device is shown, and no other."""
    survivors = wire.decode_ids(message, Kind.SURVIVORS, state.terms)
    others = set(survivors) - {state.me}
    if len(others) == len(survivors) or not others <= state.shares.keys():
        raise _Abort(AbortReason.WRONG_SURVIVORS)
    _need(state, len(others))
    confirmed = _next(Confirmed, state, survivors=survivors)
    signature = _identity(state).sign(_survivors_text(confirmed))
    return confirmed, wire.message(Kind.CONFIRMATION, state.terms, signature)


def _open_confirmed(state: Confirmed, message: bytes) -> tuple[Finished, bytes]:
    """Open shares, once `threshold` devices (this one among them) have signed the very same survivors."""
    request = wire.decode_unmask(message, state.terms)
    survivors, text = set(state.survivors), _survivors_text(state)
    if set(request.dead) != state.shares.keys() - survivors:
        raise _Abort(AbortReason.WRONG_SURVIVORS)
    directory = _identity(state).directory
    for signer, signature in request.confirmations:
        trusted = signer == state.me or verify(directory, signer, signature, text)
        if signer not in survivors or not trusted:
            raise _Abort(AbortReason.BAD_SIGNATURE)
    signers = {signer for signer, _ in request.confirmations} | {state.me}
    if len(signers) < state.parameters.threshold:
        raise _Abort(AbortReason.TOO_FEW)
    return _open(state, request.dead)


def _open(state: Masked, dead: tuple[int, ...]) -> tuple[Finished, bytes]:
    """Each neighbour is dead or not, so one kind of share of each leaves this device and never both."""
    if not state.shares.keys() >= set(dead):
        raise _Abort(AbortReason.STRANGER)
    _need(state, len(state.shares) - len(dead))
    gone = set(dead)
    opened = [
        (peer, ShareKind.MASK_SECRET, secret_share) if peer in gone else (peer, ShareKind.SEED, seed_share)
        for peer, (secret_share, seed_share) in state.shares.items()
    ]
    return Finished(terms=state.terms, me=state.me), wire.encode_opening(opened, state.terms)


def self_mask_key(seed: bytes, context: bytes, device: int) -> bytes:
    """The key of a device's own mask."""
    return derive(seed, b"self", context + device.to_bytes(8, "little"))


def _own_advertisement(state: Advertised) -> bytes:
    session = state.terms.session
    body = state.box_pair.public + state.mask_pair.public + commit(state.seed, session, state.me)
    if state.identity is None:
        return body
    return body + state.identity.sign(advertisement_text(session, state.me, body))


def _need(state: Shared | Checked | Masked, neighbours: int) -> None:
    """Give up if this number of remaining neighbours is too small.

    Fewer than the threshold could not rebuild this device's secrets. In a complete graph the neighbours and the device
    are all there is, so their number must also reach the terms' minimum and the device's floor. In a sparse graph a
    device does not see how many others there are, and has only the server's word about n.
    """
    if neighbours < state.parameters.threshold:
        raise _Abort(AbortReason.TOO_FEW)
    if state.parameters.complete and 1 + neighbours < max(state.terms.minimum_survivors, state.fewest):
        raise _Abort(AbortReason.TOO_FEW)


def _check_parameters(claimed: GraphParameters, terms: MaskingTerms, fewest: int) -> None:
    """The server claims n. k and t follow from it, and no other values are accepted, weaker or not."""
    if claimed.devices < max(terms.minimum_survivors, fewest):
        raise _Abort(AbortReason.TOO_FEW)
    try:
        safe = parameters_for(claimed.devices, terms)
    except InvalidInput:
        raise _Abort(AbortReason.UNSAFE_GRAPH) from None
    if claimed != safe:
        raise _Abort(AbortReason.UNSAFE_GRAPH)


def _check_keys(state: Advertised, neighbours: dict[int, Advertisement]) -> None:
    keys = [state.box_pair.public, state.mask_pair.public]
    for advert in neighbours.values():
        for key in (advert.box_key, advert.mask_key):
            check_public_key(key)
            keys.append(key)
    if len(set(keys)) != len(keys):
        raise _Abort(AbortReason.REPEATED_KEY)


def _check_signatures(state: Advertised, identity: Identity, neighbours: dict[int, Advertisement]) -> bytes:
    """Check that a device of the directory signed each advertisement. The digest of all of them, our own included."""
    session = state.terms.session
    bodies = {state.me: _own_advertisement(state)}
    for peer, advert in neighbours.items():
        text = advertisement_text(session, peer, advert.unsigned)
        if not verify(identity.directory, peer, advert.signature, text):
            raise _Abort(AbortReason.BAD_SIGNATURE)
        bodies[peer] = advert.unsigned + advert.signature
    return roster_digest(bodies)


def _identity(state: Masked) -> Identity:
    if state.identity is None:
        raise _Abort(AbortReason.UNEXPECTED)
    return state.identity


def _survivors_text(state: Confirmed) -> bytes:
    context = session_context(state.terms.digest, state.roster)
    return survivors_text(context, wire.id_list(state.survivors))


def save(state: DeviceState) -> bytes:
    """The state as bytes."""
    data = _HEAD.pack(_MAGIC, STATE_VERSION, _KINDS.index(type(state)), state.me)
    data += state.terms.to_bytes() + _fields(state)
    return data + hashlib.sha256(_TAG + data).digest()


def restore(data: bytes) -> DeviceState:
    """The state in these bytes; DecodeError if they are damaged, or of another version."""
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if len(content) < _HEAD.size or content[:2] != _MAGIC:
        raise DecodeError("the bytes are not the state of a masking session")
    _, version, kind, me = _HEAD.unpack_from(content)
    if version != STATE_VERSION:
        raise DecodeError(f"the state has version {version}; this side reads version {STATE_VERSION}")
    if hashlib.sha256(_TAG + content).digest() != digest or kind >= len(_KINDS):
        raise DecodeError("the state of a masking session is damaged")
    reader = _StateReader(content[_HEAD.size :], name="the fields of a masking session's state")
    terms = MaskingTerms.from_bytes(reader.take(TERMS_BYTES))
    state: DeviceState = _KINDS[kind](terms=terms, me=me, **reader.state(_KINDS[kind], terms))
    reader.end()
    return state


def _fields(state: DeviceState) -> bytes:
    match state:
        case Advertised():
            secrets = state.box_pair.secret + state.mask_pair.secret + state.seed
            return secrets + _identity_bytes(state.identity) + _COUNT.pack(state.fewest)
        case Shared() | Checked():
            return (
                _parameters(state.parameters)
                + state.mask_pair.secret
                + state.seed
                + _counted(len(state.mask_keys), b"".join(_of_peers(state)))
                + _seen(state)
            )
        case Masked():
            shares = b"".join(_SHARES_OF.pack(peer, *pair) for peer, pair in state.shares.items())
            data = _parameters(state.parameters) + _counted(len(state.shares), shares) + _seen(state)
            if isinstance(state, Confirmed):
                data += _counted(len(state.survivors), b"".join(map(_ID.pack, state.survivors)))
            return data
        case Aborted():
            return bytes([_REASONS.index(state.reason)])
        case Finished():
            return b""


def _parameters(parameters: GraphParameters) -> bytes:
    return _PARAMETERS.pack(parameters.devices, parameters.neighbours, parameters.threshold)


def _of_peers(state: Shared | Checked) -> Iterator[bytes]:
    for peer, mask_key in state.mask_keys.items():
        if isinstance(state, Shared):
            yield _KEYS_OF.pack(peer, mask_key, state.receiving_keys[peer])
        else:
            yield _KEY_AND_SHARES_OF.pack(peer, mask_key, *state.shares[peer])


def _seen(state: Shared | Checked | Masked) -> bytes:
    """What a device knows of the cohort and asks of it."""
    return state.roster + _identity_bytes(state.identity) + _COUNT.pack(state.fewest)


def _counted(count: int, entries: bytes) -> bytes:
    return _COUNT.pack(count) + entries


def _identity_bytes(identity: Identity | None) -> bytes:
    if identity is None:
        return b""
    directory: Mapping[int, bytes] = identity.directory
    keys = b"".join(_KEY_OF.pack(device, key) for device, key in directory.items())
    return identity.secret + _counted(len(directory), keys)


class _StateReader(Reader):
    """Reads what `_fields` writes."""

    def count(self) -> int:
        return int(self.fields(_COUNT)[0])

    def counted(self, layout: struct.Struct) -> list[tuple[Any, ...]]:
        return self.entries(layout, self.count())

    def key_pair(self) -> KeyPair:
        return KeyPair.from_secret(self.take(KEY_BYTES))

    def parameters(self) -> GraphParameters:
        return GraphParameters(*self.fields(_PARAMETERS))

    def own(self) -> dict[str, Any]:
        return {"parameters": self.parameters(), "mask_pair": self.key_pair(), "seed": self.take(KEY_BYTES)}

    def seen(self, terms: MaskingTerms) -> dict[str, Any]:
        roster = self.take(KEY_BYTES) if terms.signed else b""
        return {"roster": roster, "identity": self.identity(terms), "fewest": self.count()}

    def identity(self, terms: MaskingTerms) -> Identity | None:
        if not terms.signed:
            return None
        secret = self.take(KEY_BYTES)
        return Identity(secret=secret, directory=dict(self.counted(_KEY_OF)))

    def state(self, kind: type[DeviceState], terms: MaskingTerms) -> dict[str, Any]:
        """The fields of a state of this kind, except for the terms and the device's id."""
        if kind is Advertised:
            secrets = {
                "box_pair": self.key_pair(),
                "mask_pair": self.key_pair(),
                "seed": self.take(KEY_BYTES),
            }
            return secrets | {"identity": self.identity(terms), "fewest": self.count()}
        if kind is Shared:
            own, keys = self.own(), self.counted(_KEYS_OF)
            mask_keys = {peer: mask_key for peer, mask_key, _ in keys}
            receiving_keys = {peer: box_key for peer, _, box_key in keys}
            return own | {"mask_keys": mask_keys, "receiving_keys": receiving_keys} | self.seen(terms)
        if kind is Checked:
            own, opened = self.own(), self.counted(_KEY_AND_SHARES_OF)
            mask_keys = {peer: mask_key for peer, mask_key, *_ in opened}
            shares = {peer: tuple(pair) for peer, _, *pair in opened}
            return own | {"mask_keys": mask_keys, "shares": shares} | self.seen(terms)
        if kind in (Masked, Confirmed):
            parameters = self.parameters()
            shares = {peer: tuple(pair) for peer, *pair in self.counted(_SHARES_OF)}
            masked = {"parameters": parameters, "shares": shares} | self.seen(terms)
            if kind is Confirmed:
                masked["survivors"] = tuple(device for (device,) in self.counted(_ID))
            return masked
        if kind is Aborted:
            (reason,) = self.take(1)
            if reason >= len(_REASONS):
                raise DecodeError("the state was aborted for an unknown reason")
            return {"reason": _REASONS[reason]}
        return {}
