"""The devices of one masked sum as the server sees them: their keys, and who is whose neighbour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedhist.protocol.histograms import Flags
from fedhist.protocol.masking import wire
from fedhist.protocol.masking.graph import GraphParameters, Positions, all_neighbours, ring_of
from fedhist.protocol.masking.keys import roster_digest, session_context
from fedhist.protocol.masking.terms import MaskingTerms
from fedhist.protocol.masking.wire import Advertisement


@dataclass(frozen=True, eq=False, repr=False)
class Cohort:
    """The devices that advertised, and the graph over them. Devices are numbered in the order of their ids.

    Args:
        terms: what both sides agree on.
        bodies: the devices' advertisements, by id.
        directory: in signed mode, the devices' lasting public keys, by id.
        parameters: of the graph.
        salt: of the graph.
    """

    terms: MaskingTerms
    bodies: Mapping[int, bytes]
    directory: Mapping[int, bytes]
    parameters: GraphParameters
    salt: bytes

    @cached_property
    def ids(self) -> list[int]:
        """The devices' ids, ascending."""
        return sorted(self.bodies)

    @cached_property
    def number(self) -> dict[int, int]:
        """The number of each device."""
        return {device: number for number, device in enumerate(self.ids)}

    @cached_property
    def context(self) -> bytes:
        """What the devices' keys are bound to. In signed mode everybody is shown all the others."""
        return session_context(self.terms.digest, roster_digest(self.bodies) if self.terms.signed else b"")

    @cached_property
    def adjacency(self) -> Positions:
        """The numbers of each device's neighbours, one ascending row a device."""
        return all_neighbours(self.parameters, ring_of(len(self.ids), self.salt, self.terms.digest))

    def neighbours(self, device: int) -> list[int]:
        """The ids of a device's neighbours, ascending: the order of their shares' points."""
        return [self.ids[number] for number in self.adjacency[self.number[device]].tolist()]

    @cached_property
    def _points(self) -> Positions:
        """In the place of each neighbour in `adjacency`, the rank of the row's device among *its* neighbours, from 1.

        Links sorted by their second end, and by the first where the second is the same, are the links in the other
        direction in the order of `adjacency`.
        """
        links = self.adjacency.ravel()
        points = np.empty(len(links), dtype=np.int32)
        points[np.argsort(links, kind="stable")] = np.arange(len(links)) % self.parameters.neighbours + 1
        return points.reshape(self.adjacency.shape)

    def points(self, holder: int) -> dict[int, int]:
        """For each neighbour, the point of its polynomials at which the holder has its shares."""
        return dict(zip(self.neighbours(holder), self._points[self.number[holder]].tolist(), strict=True))

    def flags(self, devices: set[int]) -> Flags:
        """For each device of the cohort, whether it is one of these."""
        return np.fromiter((device in devices for device in self.ids), dtype=np.bool_, count=len(self.ids))

    def advertisement(self, device: int) -> Advertisement:
        """The keys of a device."""
        return wire.read_advertisement(self.bodies[device], self.terms)
