"""The server's side of one masked sum, stage by stage. Each stage takes messages and closes into the next.

    CollectingAdvertisements ─▶ CollectingShares ─▶ CollectingComplaints ─▶ CollectingInputs
    CollectingInputs ─────────────────────────────────────▶ CollectingOpenings ─▶ MaskedSum
              └─▶ CollectingConfirmations, signed mode ─▲

    stage = CollectingAdvertisements(terms, source=source)
    stage.add(sender, message)                  # each answer; False if it is ignored, which `rejected` counts by reason
    stage, messages = stage.close()             # the messages to send next, lazily, as (id, bytes)

A device that is silent or sends nonsense is a drop-out, and one whose boxes do not open is left out before any device
masks its input; `incidents` has their ids and the reasons. When too few devices are left, `close` raises RoundFailed
before any request to unmask is made, so that every input stays hidden. A stage is closed once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np

from fedhist.protocol.errors import BadKey, DecodeError, InvalidInput, RoundFailed, UnexpectedMessage
from fedhist.protocol.masking import wire
from fedhist.protocol.masking.cohort import Cohort, Incidents, LeftOut, Rejection, devices_to_leave_out
from fedhist.protocol.masking.crypto import (
    KEY_BYTES,
    MAX_ID,
    advertisement_text,
    check_public_key,
    draw_bytes,
    survivors_text,
    verify,
)
from fedhist.protocol.masking.graph import MAX_DEVICES, MaskingTerms, parameters_for
from fedhist.protocol.masking.recovery import MaskedSum, Recovery
from fedhist.protocol.masking.vectors import read_residues, zeros
from fedhist.protocol.masking.wire import Kind, MaskingStage, ShareKind
from fedhist.protocol.privacy.randomness import Source

Messages = Iterator[tuple[int, bytes]]


class Rejected(Exception):
    """Leaves a stage's `_take`; `add` counts it."""

    def __init__(self, reason: Rejection) -> None:
        self.reason = reason
        super().__init__(reason.value)


class Stage(ABC):
    """Takes each expected sender's message once, and counts what it ignores."""

    name: ClassVar[MaskingStage]

    def __init__(self, terms: MaskingTerms, expected: set[int] | None, incidents: Incidents) -> None:
        self.terms = terms
        self.incidents = incidents
        self.expected = expected
        self._heard: set[int] = set()
        self._ignored: dict[int, Rejection] = {}
        self._closed = False

    @property
    def rejected(self) -> Counter[Rejection]:
        """The number of messages ignored so far, by reason."""
        return self.incidents.rejected

    def add(self, sender: int, message: bytes) -> bool:
        """Take a device's message. False if it is ignored, which is counted in `rejected`."""
        if self._closed:
            raise UnexpectedMessage(state=self, message=message)
        try:
            if self.expected is not None and sender not in self.expected:
                raise Rejected(Rejection.STRANGER)
            if sender in self._heard:  # audited: heard, masked
                raise Rejected(Rejection.DUPLICATE)
            self._take(sender, message)
        except Rejected as refused:
            reason = refused.reason
        except DecodeError:
            reason = Rejection.MALFORMED
        except BadKey:
            reason = Rejection.BAD_KEY
        else:
            self._heard.add(sender)
            return True
        self.rejected[reason] += 1
        self._ignored[sender] = reason
        return False

    @abstractmethod
    def _take(self, sender: int, message: bytes) -> None:
        """Keep the message of an expected sender, or raise."""

    @abstractmethod
    def close(self) -> tuple[Stage, Messages] | MaskedSum:
        """The next stage and the messages to send for it, or the sum. Once."""

    def _close(self) -> None:
        if self._closed:
            raise UnexpectedMessage(state=self, message=None)
        self._closed = True

    def _need(self, alive: int, needed: int) -> None:
        if alive < needed:
            raise self.incidents.too_few(self.name, alive=alive, needed=needed)


class CohortStage(Stage):
    """A stage after the graph was drawn; `expected` are the devices that may still send something."""

    expected: set[int]

    def __init__(self, cohort: Cohort, expected: set[int], incidents: Incidents) -> None:
        super().__init__(cohort.terms, expected, incidents)
        self.cohort = cohort

    def _name_ignored(self) -> None:
        """Name the expected devices that sent something, none of which could be taken."""
        for sender, reason in self._ignored.items():
            if sender in self.expected and sender not in self._heard:
                self.incidents.leave_out(reason, [sender])

    def _with_enough_neighbours(self, devices: set[int]) -> set[int]:
        """These devices, less those with fewer than t neighbours among them, whose secrets could not be rebuilt."""
        cohort, kept = self.cohort, self.cohort.flags(devices)
        while True:
            enough = kept & (kept[cohort.adjacency].sum(axis=1) >= cohort.parameters.threshold)
            if (enough == kept).all():
                break
            kept = enough
        found = {device for device, keep in zip(cohort.ids, kept.tolist(), strict=True) if keep}
        self.incidents.leave_out(LeftOut.FEW_NEIGHBOURS, devices - found)
        self._need(len(found), max(self.terms.minimum_survivors, cohort.parameters.threshold + 1))
        return found


class CollectingAdvertisements(Stage):
    """Every device that advertises takes part. In signed mode `directory` has the public keys that devices have too."""

    name = MaskingStage.ADVERTISING

    def __init__(
        self, terms: MaskingTerms, *, source: Source, directory: Mapping[int, bytes] | None = None
    ) -> None:
        if terms.signed != (directory is not None):
            raise InvalidInput(
                f"there is {'no directory in' if terms.signed else 'a directory outside of'} signed mode",
                allowed="a directory in signed mode, and only there",
            )
        super().__init__(terms, None if directory is None else set(directory), Incidents())
        self._salt = draw_bytes(KEY_BYTES, source=source)
        self._directory = dict(directory or {})
        self._bodies: dict[int, bytes] = {}
        self._keys: set[bytes] = set()

    def _take(self, sender: int, message: bytes) -> None:
        if not 0 <= sender <= MAX_ID:
            raise Rejected(Rejection.STRANGER)
        if len(self._bodies) == MAX_DEVICES:
            raise Rejected(Rejection.FULL)
        body = bytes(wire.body_of(message, Kind.ADVERTISEMENT, self.terms))
        advert = wire.read_advertisement(body, self.terms)
        keys = {advert.box_key, advert.mask_key}
        for key in keys:
            check_public_key(key)
        # Neighbours would abort on a repeated key, so the device that repeats one is out instead of them.
        if len(keys) != 2 or keys & self._keys:
            raise Rejected(Rejection.BAD_KEY)
        text = advertisement_text(self.terms.session, sender, advert.unsigned)
        if self.terms.signed and not verify(self._directory, sender, advert.signature, text):
            raise Rejected(Rejection.BAD_SIGNATURE)
        self._keys |= keys
        self._bodies[sender] = body

    def close(self) -> tuple[CollectingShares, Messages]:
        """Draw the graph over the devices that advertised, and send each its neighbours."""
        self._close()
        self._need(len(self._bodies), self.terms.minimum_survivors)
        try:
            parameters = parameters_for(len(self._bodies), self.terms)
        except InvalidInput as error:
            raise RoundFailed(str(error), code="bad-number-of-devices") from None
        cohort = Cohort(self.terms, self._bodies, self._directory, parameters, self._salt)
        return CollectingShares(cohort, self.incidents), self._rosters(cohort)

    def _rosters(self, cohort: Cohort) -> Messages:
        entries = [wire.roster_entry(device, cohort.bodies[device]) for device in cohort.ids]
        for device, row in zip(cohort.ids, cohort.adjacency, strict=True):
            yield (
                device,
                wire.encode_roster(cohort.parameters, map(entries.__getitem__, row.tolist()), self.terms),
            )


class CollectingShares(CohortStage):
    """Takes boxes from their senders and sorts them by receiver."""

    name = MaskingStage.SHARING

    def __init__(self, cohort: Cohort, incidents: Incidents) -> None:
        super().__init__(cohort, set(cohort.ids), incidents)
        self._boxes: dict[int, list[tuple[int, bytes]]] = {device: [] for device in cohort.ids}

    def _take(self, sender: int, message: bytes) -> None:
        boxes = wire.decode_boxes(message, Kind.SHARES, self.terms)
        if [receiver for receiver, _ in boxes] != self.cohort.neighbours(sender):
            raise Rejected(Rejection.WRONG_RECEIVERS)
        for receiver, box in boxes:
            self._boxes[receiver].append((sender, box))

    def close(self) -> tuple[CollectingComplaints, Messages]:
        """Deliver boxes from and to the devices whose masks can still be undone."""
        self._close()
        self._name_ignored()
        kept = self._with_enough_neighbours(self._heard)
        return CollectingComplaints(self.cohort, kept, self.incidents), self._deliveries(kept)

    def _deliveries(self, kept: set[int]) -> Messages:
        for device in self.cohort.ids:
            boxes = self._boxes.pop(device)
            if device in kept:
                delivered = sorted(box for box in boxes if box[0] in kept)
                yield device, wire.encode_boxes(Kind.BOXES, delivered, self.terms)


class CollectingComplaints(CohortStage):
    """Takes complaints about boxes that did not open. No masked vector exists until these are settled."""

    name = MaskingStage.CHECKING

    def _take(self, sender: int, message: bytes) -> None:
        accused = wire.decode_ids(message, Kind.COMPLAINTS, self.terms)
        if not accused:
            return
        if not set(accused) <= self.expected.intersection(self.cohort.neighbours(sender)):
            raise Rejected(Rejection.WRONG_COMPLAINTS)
        self.incidents.complaints[sender] = accused

    def close(self) -> tuple[CollectingInputs, Messages]:
        """Leave out a small cover of the complaints, and send all other devices the peers to mask with."""
        self._close()
        self._name_ignored()
        # A complaint by or about a device that has dropped out says nothing about the other side.
        open_complaints = {
            accuser: self._heard.intersection(accused)
            for accuser, accused in self.incidents.complaints.items()
        }
        gone = devices_to_leave_out(open_complaints)
        for device, reason in gone.items():
            self.incidents.leave_out(reason, [device])
        kept = self._with_enough_neighbours(self._heard - gone.keys())
        return CollectingInputs(self.cohort, kept, self.incidents), self._peers(kept)

    def _peers(self, kept: set[int]) -> Messages:
        flags, cohort = self.cohort.flags(kept), self.cohort
        ids = np.array(cohort.ids, dtype=np.uint64)
        for device, row in zip(cohort.ids, cohort.adjacency, strict=True):
            if device in kept:
                yield device, wire.encode_ids(Kind.PEERS, ids[row[flags[row]]].tolist(), self.terms)


class CollectingInputs(CohortStage):
    """Adds masked inputs to one running sum as they come, and keeps none."""

    name = MaskingStage.MASKING

    def __init__(self, cohort: Cohort, expected: set[int], incidents: Incidents) -> None:
        super().__init__(cohort, expected, incidents)
        self._sum = zeros(self.terms.length, self.terms.width)

    def _take(self, sender: int, message: bytes) -> None:
        residues = read_residues(wire.masked_body(message, self.terms), self.terms.width)
        np.add(self._sum, residues, out=self._sum)

    def close(self) -> tuple[CollectingConfirmations | CollectingOpenings, Messages]:
        """Settle the survivors. Ask them for confirmations in signed mode, else for the shares that unmask."""
        self._close()
        self._name_ignored()
        self._need(len(self._heard), self.terms.minimum_survivors)
        self._need_neighbours()
        recovery = Recovery(self.cohort, self._sum, shared=self.expected, included=self._heard)
        if not self.terms.signed:
            return _ask_to_open(recovery, b"", self._heard, self.incidents)
        survivors = wire.id_list(sorted(self._heard))
        message = wire.message(Kind.SURVIVORS, self.terms, survivors)
        following = CollectingConfirmations(recovery, survivors, self.incidents)
        return following, ((device, message) for device in sorted(self._heard))

    def _need_neighbours(self) -> None:
        """Every device in a survivor's masks needs t surviving neighbours: they hold the shares to undo its masks."""
        cohort = self.cohort
        alive = cohort.flags(self._heard)[cohort.adjacency].sum(axis=1)
        masked_with = cohort.flags(self.expected) & ((alive > 0) | cohort.flags(self._heard))
        fewest = int(alive[masked_with].min())
        if fewest < cohort.parameters.threshold:
            needed = cohort.parameters.threshold
            raise self.incidents.too_few(
                self.name, alive=fewest, needed=needed, of="neighbours of some device"
            )


class CollectingConfirmations(CohortStage):
    """Signed mode: takes the survivors' signatures of the set of survivors."""

    name = MaskingStage.CONFIRMING

    def __init__(self, recovery: Recovery, survivors: bytes, incidents: Incidents) -> None:
        super().__init__(recovery.cohort, recovery.included, incidents)
        self._recovery = recovery
        self._text = survivors_text(self.cohort.context, survivors)
        self._signatures: dict[int, bytes] = {}

    def _take(self, sender: int, message: bytes) -> None:
        signature = wire.decode_confirmation(message, self.terms)
        if not verify(self.cohort.directory, sender, signature, self._text):
            raise Rejected(Rejection.BAD_SIGNATURE)
        self._signatures[sender] = signature

    def close(self) -> tuple[CollectingOpenings, Messages]:
        """Send the signatures to the devices that signed, and ask these to open shares."""
        self._close()
        # A signer needs t shares from others, so one more than t must be left.
        self._need(len(self._heard), self.cohort.parameters.threshold + 1)
        signatures = b"".join(wire.confirmation_entry(*entry) for entry in sorted(self._signatures.items()))
        return _ask_to_open(self._recovery, signatures, self._heard, self.incidents)


class CollectingOpenings(CohortStage):
    """Takes shares: of the seeds of included devices, and of the mask secrets of dead ones."""

    name = MaskingStage.UNMASKING

    def __init__(self, recovery: Recovery, asked: set[int], incidents: Incidents) -> None:
        super().__init__(recovery.cohort, asked, incidents)
        self._recovery = recovery

    def _take(self, sender: int, message: bytes) -> None:
        opened = wire.decode_opening(message, self.terms)
        if [(share.owner, share.kind) for share in opened] != self._due(sender):
            raise Rejected(Rejection.WRONG_SHARES)
        self._recovery.keep(sender, opened)

    def _due(self, sender: int) -> list[tuple[int, ShareKind]]:
        recovery = self._recovery
        return [
            (peer, ShareKind.SEED if peer in recovery.included else ShareKind.MASK_SECRET)
            for peer in self.cohort.neighbours(sender)
            if peer in recovery.shared
        ]

    def close(self) -> MaskedSum:
        """Rebuild the secrets and take the masks off the sum over the included devices."""
        self._close()
        return self._recovery.unmask(self.incidents)


def _ask_to_open(
    recovery: Recovery, confirmations: bytes, asked: set[int], incidents: Incidents
) -> tuple[CollectingOpenings, Messages]:
    def requests() -> Messages:
        for device in sorted(asked):
            dead = [
                peer
                for peer in recovery.cohort.neighbours(device)
                if peer in recovery.shared and peer not in recovery.included
            ]
            yield device, wire.encode_unmask(dead, confirmations, recovery.cohort.terms)

    return CollectingOpenings(recovery, asked, incidents), requests()
