"""The cohort in this process: every shard of users is one participant, all run by the same code as a phone."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedhist.client.device import answer, bucket_table
from fedhist.protocol.codec import encode
from fedhist.protocol.histograms import Histograms, Integers, Population, labels_of
from fedhist.protocol.keyed import KeyedSum
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Labels, Request, Round, Total

_SAMPLE = 100


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
        labels = labels_of(self.population)
        bucket_of = bucket_table(
            request.plan, range(self.population.domain_size) if labels is None else labels
        )
        values = np.zeros(request.length, dtype=np.int64)
        keyed = KeyedSum(request.keyed_columns) if request.keyed_columns else None
        users = 0
        for shard in self.population.shards():
            contribution = answer(request, shard, source=self.source, bucket_of=bucket_of)
            if users == 0:
                self.bytes_per_user[request.round] = self._message_bytes(request, shard, bucket_of, labels)
            values += contribution.values
            if keyed is not None and contribution.keyed is not None:
                keyed.add(contribution.keyed)
            users += contribution.users
        self.totals[request.round] = Total(
            round=request.round,
            users=users,
            values=values,
            keyed=None if keyed is None else keyed.total(),
            labels=labels,
        )
        return self.totals[request.round]

    def _message_bytes(
        self, request: Request, shard: Histograms, bucket_of: Integers | None, labels: Labels | None
    ) -> int:
        """The size of what one user's own device would send.

        The same for every user where the message has a fixed length; else the mean over the first users.
        """
        sample = _SAMPLE if request.keyed_columns else 1
        sizes = [
            len(
                encode(
                    answer(request, shard.rows(i, i + 1), source=self.source, bucket_of=bucket_of),
                    request,
                    labels,
                )
            )
            for i in range(min(sample, shard.users))
        ]
        return round(sum(sizes) / len(sizes))
