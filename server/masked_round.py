"""A masked sum over a cohort: the one driver of the masking session's stages, over any exchange of messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from fedhist.protocol.masking.recovery import MaskedSum
from fedhist.protocol.masking.server_session import CollectingAdvertisements
from fedhist.protocol.masking.server_stage import Messages, Stage
from fedhist.protocol.masking.stages import MaskingStage
from fedhist.protocol.masking.terms import MaskingTerms
from fedhist.protocol.privacy.randomness import Source

Exchange = Callable[[MaskingStage, Messages | None], Iterable[tuple[int, bytes]]]
"""Sends each participant its message of a stage, and yields (participant, answer) as the answers come.

A participant that does not answer is left out. In the first stage the messages are None: all participants are asked to
advertise keys.
"""


def masked_sum(
    terms: MaskingTerms,
    exchange: Exchange,
    *,
    source: Source,
    directory: Mapping[int, bytes] | None = None,
    on_ignored: Callable[[int], None] = lambda sender: None,
) -> MaskedSum:
    """The sum over the participants that stayed. Raises RoundFailed when these are too few; then nothing was unmasked.

    Args:
        terms: what both sides agree on.
        exchange: carries the messages.
        source: for the salt of the graph.
        directory: in signed mode, the participants' public keys by id.
        on_ignored: called with the sender of each answer that the session does not take, before the next one comes.
    """
    stage: Stage = CollectingAdvertisements(terms, source=source, directory=directory)
    messages: Messages | None = None
    while True:
        for sender, answer in exchange(stage.name, messages):
            if not stage.add(sender, answer):
                on_ignored(sender)
        closed = stage.close()
        if isinstance(closed, MaskedSum):
            return closed
        stage, messages = closed
