"""The cohort in this process: every shard of users is one participant, all run by the same code as a phone."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedhist.client.device import answer
from fedhist.protocol.codec import encode
from fedhist.protocol.histograms import Histograms, Population
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Request, Round, Total


@dataclass
class InProcess:
    """A transport over a population on this machine.

    Remembers what only a simulation may know: the exact totals, and how many bytes one user's device would have sent.
    """

    population: Population
    source: Source
    simulated: bool = True
    totals: dict[Round, Total] = field(default_factory=dict, repr=False)
    bytes_per_user: dict[Round, int] = field(default_factory=dict)

    def total(self, request: Request) -> Total:
        """The sum over all shards, one shard in memory at a time."""
        values = np.zeros(request.length, dtype=np.int64)
        users = 0
        for shard in self.population.shards():
            contribution = answer(request, shard, source=self.source)
            if users == 0:
                self.bytes_per_user[request.round] = self._message_bytes(request, shard.rows(0, 1))
            values += contribution.values
            users += contribution.users
        self.totals[request.round] = Total(round=request.round, users=users, values=values)
        return self.totals[request.round]

    def _message_bytes(self, request: Request, one_user: Histograms) -> int:
        """The size of what one user's own device would send: the same for every user, whatever their data."""
        return len(encode(answer(request, one_user, source=self.source), request))
