"""`fedhist.masking` on a grid in this process: what a server gets, and what one that is up to no good gets."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from local_grid import LocalGrid, context_of, dead, error_reply, outcome, silent

from fedhist import InvalidInput, RoundFailed, masking
from tests.support.api import (
    BOX_BYTES,
    HEADER_BYTES,
    SHARE_BYTES,
    SUM_RECORD,
    Identity,
    MaskingFailed,
    MaskingStage,
    Refusal,
    content_digest,
    numbered_identities,
    parse_directory,
)

STAGES = [stage.value for stage in MaskingStage if stage is not MaskingStage.CONFIRMING]
IDENTITIES = numbered_identities([bytes([number]) * 32 for number in range(8)])
QUESTION = RecordDict({"model": ArrayRecord([np.zeros((2, 2)), np.zeros(3, dtype=np.float32)])})
Answer = Callable[[Message, Context], RecordDict]


def values_of(node: int) -> list[np.ndarray]:
    """What a node holds."""
    draw = np.random.default_rng(node)
    return [draw.normal(size=(2, 2)), draw.normal(size=3).astype(np.float32)]


def holding(message: Message, context: Context) -> RecordDict:
    """The usual answer: the node's values, and its number of examples."""
    arrays = ArrayRecord(values_of(context.node_id))
    return RecordDict({"model": arrays, "metrics": MetricRecord({"num-examples": context.node_id - 99})})


def app_of(answer: Answer = holding, **settings: Any) -> ClientApp:
    """An app with a masked `train` and two handlers that are nobody's business."""
    app = ClientApp()

    @app.train(mods=[masking.mod(**({"simulated": lambda context: True} | settings))])
    def train(message: Message, context: Context) -> Message:
        return Message(answer(message, context), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(message.content, reply_to=message)

    return app


def grid_of(count: int = 8, answer: Answer = holding, **settings: Any) -> Any:
    return LocalGrid.of([app_of(answer, **settings) for _ in range(count)])


def stage_of(message: Message) -> str:
    """The stage of a masked sum that the message belongs to."""
    return str(message.content.config_records[SUM_RECORD]["stage"])


def at(stage: str, wrong: Any) -> Any:
    """A node that is as it should be but in one stage."""

    def fault(message: Message, node: Any) -> list[Message]:
        return wrong(message, node) if stage_of(message) == stage else [node.answer(message)]

    return fault


def total(grid: Any, content: RecordDict = QUESTION, **settings: Any) -> Any:
    return masking.sum_on_grid(grid, content, **({"bound": 8.0} | settings))


def exact(nodes: Any) -> list[np.ndarray]:
    return [sum(arrays) for arrays in zip(*(values_of(node) for node in nodes), strict=True)]


def assert_sum_of(result: Any, nodes: Any) -> None:
    """The result is the sum of exactly these nodes, to within what is promised."""
    assert list(result.nodes) == list(nodes) and result.weight == len(list(nodes))
    summed = result.sums["model"].to_numpy_ndarrays()
    for found, expected in zip(summed, exact(nodes), strict=True):
        assert found.shape == expected.shape and found.dtype == np.float64
        assert np.abs(found - expected).max() <= result.weight * result.step / 2 + 1e-6


class TestASum:
    def test_it_is_that_of_the_nodes(self) -> None:
        result = total(grid_of())
        assert_sum_of(result, range(100, 108))
        assert result.left_out == {} and list(result.sums) == ["model"]

    def test_a_weighted_mean(self) -> None:
        result = total(grid_of(), weighted_by="num-examples", max_weight=100)
        assert result.weight == sum(range(1, 9))
        exact_mean = sum((node - 99) * values_of(node)[0] for node in range(100, 108)) / result.weight
        assert np.abs(result.mean()["model"].to_numpy_ndarrays()[0] - exact_mean).max() <= result.step / 2

    def test_whole_numbers_are_exact(self) -> None:
        def answer(message: Message, context: Context) -> RecordDict:
            return RecordDict(
                {"counts": ArrayRecord([np.array([2**40 + context.node_id, -context.node_id])])}
            )

        like = RecordDict({"counts": ArrayRecord([np.zeros(2, dtype=np.int64)])})
        result = total(grid_of(4, answer), RecordDict(), like=like, bound=2**50)
        (found,) = result.sums["counts"].to_numpy_ndarrays()
        assert found.dtype == np.int64 and found.tolist() == [4 * 2**40 + 406, -406]

    def test_the_handler_gets_the_servers_content_once_and_nothing_of_ours(self) -> None:
        seen: list[RecordDict] = []

        def answer(message: Message, context: Context) -> RecordDict:
            seen.append(message.content)
            return holding(message, context)

        content = RecordDict(
            {"model": QUESTION["model"], "config": ConfigRecord({"rate": 0.1, "steps": [1, 2]})}
        )
        total(grid_of(4, answer), content)
        assert seen == [content] * 4

    def test_a_mod_of_flowers_own_may_stand_behind_it(self) -> None:
        """Noise on each node, and masks over it: the sum has the noise of all four."""
        app = ClientApp()
        noise = LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=5.0, delta=1e-5)

        @app.train(mods=[masking.mod(simulated=lambda context: True), noise])
        def train(message: Message, context: Context) -> Message:
            return Message(RecordDict({"model": ArrayRecord([np.full(1_000, 1e-3)])}), reply_to=message)

        content = RecordDict({"model": ArrayRecord([np.zeros(1_000)])})
        found = total(LocalGrid.of([app] * 4), content, bound=100.0).sums["model"].to_numpy_ndarrays()[0]
        expected = np.sqrt(4 * 2 * np.log(1.25 / 1e-5)) / 5.0
        assert 0.9 * expected < found.std() < 1.1 * expected

    def test_only_nodes_that_are_named_are_asked(self) -> None:
        grid = grid_of()
        assert_sum_of(total(grid, node_ids=[101, 103, 105, 107]), [101, 103, 105, 107])
        assert {message.metadata.dst_node_id for message in grid.asked} == {101, 103, 105, 107}

    def test_it_waits_for_nodes_and_not_for_ever(self) -> None:
        grid = grid_of(4)
        looks = iter([[], [100], [100, 101, 102, 103]])
        grid.get_node_ids = lambda: next(looks)
        assert_sum_of(total(grid, minimum_nodes=4), range(100, 104))
        with pytest.raises(RoundFailed, match="4 nodes are connected and 5 are needed"):
            total(grid_of(4), minimum_nodes=5, node_timeout=0.0)

    def test_with_signatures(self) -> None:
        grid = LocalGrid.of(
            app_of(identity=lambda context: IDENTITIES[context.node_id - 100]) for _ in IDENTITIES
        )
        grid.nodes[105].fault = at("masking", silent)
        result = total(grid, directory=IDENTITIES[0].directory)
        assert_sum_of(result, [*range(100, 105), 106, 107])
        assert result.left_out == {"no-answer": (105,)}

    def test_no_message_shows_values_or_metrics(self) -> None:
        """Neither the floats that a node holds nor the whole numbers that it masks, and no metric."""
        grid = grid_of(4)
        total(grid)
        values = values_of(101)[0]
        sent = [reply.content for reply in grid.nodes[101].replies]
        data = b"".join(
            record["answer"].data for content in sent for record in content.array_records.values()
        )
        for value, steps in zip(values.flat, np.rint(values * 2**20).astype(np.int32).flat, strict=True):
            assert value.tobytes() not in data and steps.tobytes() not in data
        assert all(not content.metric_records for content in sent)


class TestNodesThatFail:
    @pytest.mark.parametrize("stage", STAGES)
    @pytest.mark.parametrize(("wrong", "reason"), [(silent, "no-answer"), (dead, "error")])
    def test_a_node_that_is_lost_in_a_stage_is_left_out(self, stage: str, wrong: Any, reason: str) -> None:
        """In the last one its values are in the sum already."""
        grid = grid_of()
        grid.nodes[103].fault = at(stage, wrong)
        result = total(grid)
        if stage == "unmasking":
            assert_sum_of(result, range(100, 108))
            assert result.left_out == {}
        else:
            assert_sum_of(result, [node for node in range(100, 108) if node != 103])
            assert result.left_out == {reason: (103,)}

    @pytest.mark.parametrize("stage", STAGES[:4])
    def test_too_many_lost_unmask_nothing_and_are_named(self, stage: str) -> None:
        grid = grid_of()
        for node in (103, 106):
            grid.nodes[node].fault = at(stage, silent)
        with pytest.raises(MaskingFailed, match="6 devices are left where 7 are needed, of 8") as failure:
            total(grid)
        assert failure.value.left_out == {"no-answer": (103, 106)}
        assert "unmasking" not in set(map(stage_of, grid.asked))

    def test_too_many_lost_at_the_end_leave_the_sum_masked(self) -> None:
        grid = grid_of()
        for node in range(100, 104):
            grid.nodes[node].fault = at("unmasking", silent)
        with pytest.raises(
            MaskingFailed, match="3 shares of a secret are left where 4 are needed"
        ) as failure:
            total(grid)
        assert failure.value.left_out == {"no-answer": (100, 101, 102, 103)}

    def test_too_many_wrong_shares_leave_the_sum_masked(self) -> None:
        def wrong(message: Message, node: Any) -> list[Message]:
            reply = node.answer(message)
            array = reply.content.array_records["fedhist-answer"]["answer"]
            size, head = 8 + 1 + SHARE_BYTES, HEADER_BYTES
            entries = [array.data[place : place + size] for place in range(head, len(array.data), size)]
            flipped = [entry[:-9] + bytes([entry[-9] ^ 1]) + entry[-8:] for entry in entries]
            array.data = array.data[:head] + b"".join(flipped)
            return [reply]

        grid = grid_of()
        for node in range(100, 105):
            grid.nodes[node].fault = at("unmasking", wrong)
        with pytest.raises(MaskingFailed, match="shares are corrupt; nothing was unmasked") as failure:
            total(grid)
        assert "corrupt-shares" in failure.value.left_out

    def test_a_node_whose_boxes_do_not_open_is_named_with_those_who_say_so(self) -> None:
        def garbage(message: Message, node: Any) -> list[Message]:
            reply = node.answer(message)
            array = reply.content.array_records["fedhist-answer"]["answer"]
            size, head = 8 + BOX_BYTES, HEADER_BYTES
            entries = [array.data[place : place + size] for place in range(head, len(array.data), size)]
            array.data = array.data[:head] + b"".join(entry[:8] + bytes(BOX_BYTES) for entry in entries)
            return [reply]

        grid = grid_of()
        grid.nodes[102].fault = at("sharing", garbage)
        result = total(grid)
        assert result.left_out == {"bad-boxes": (102,)}
        assert result.complaints == {node: (102,) for node in range(100, 108) if node != 102}

    def test_a_message_that_is_no_answer(self) -> None:
        grid = grid_of()
        grid.nodes[102].fault = at(
            "checking", lambda message, node: [Message(RecordDict(), reply_to=message)]
        )
        assert total(grid).left_out == {"malformed": (102,)}

    def test_a_node_that_takes_the_number_of_another(self) -> None:
        def impostor(message: Message, node: Any) -> list[Message]:
            reply = node.answer(message)
            array = reply.content.array_records["fedhist-answer"]["answer"]
            array.data = (100).to_bytes(8, "little") + array.data[8:]
            return [reply]

        grid = grid_of()
        grid.nodes[105].fault = at("advertising", impostor)
        result = total(grid)
        assert result.left_out == {"malformed": (105,)} and 100 in result.nodes


def raising(message: Message, context: Context) -> RecordDict:
    if context.node_id == 103:
        raise ValueError("the secret word is tangerine")
    return holding(message, context)


def returning(change: Callable[[list[np.ndarray]], list[np.ndarray]]) -> Answer:
    """One node returns something else."""

    def answer(message: Message, context: Context) -> RecordDict:
        arrays = values_of(context.node_id)
        return RecordDict({"model": ArrayRecord(change(arrays) if context.node_id == 103 else arrays)})

    return answer


def with_value(value: float) -> Callable[[list[np.ndarray]], list[np.ndarray]]:
    def change(arrays: list[np.ndarray]) -> list[np.ndarray]:
        arrays[0][0, 0] = value
        return arrays

    return change


BAD_ANSWERS = {
    "an error": raising,
    "not a number": returning(with_value(np.nan)),
    "infinite": returning(with_value(-np.inf)),
    "another shape": returning(lambda arrays: [arrays[0].T[:1], arrays[1]]),
    "another type": returning(lambda arrays: [np.ones((2, 2), dtype=np.int64), arrays[1]]),
    "one array less": returning(lambda arrays: arrays[:1]),
    "one array more": returning(lambda arrays: [*arrays, arrays[0]]),
    "text": returning(lambda arrays: [np.array([["a", "b"], ["c", "d"]]), arrays[1]]),
}


class TestTheHandlersAnswer:
    @pytest.mark.parametrize("name", BAD_ANSWERS)
    def test_one_that_fails_is_a_drop_out_and_the_server_learns_no_more(
        self, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        grid = grid_of(8, BAD_ANSWERS[name])
        result = total(grid)
        assert result.left_out == {"handler": (103,)} and len(result.nodes) == 7
        said = [reply.content.config_records["fedhist"] for reply in grid.nodes[103].replies]
        assert [(fields["status"], fields["reason"]) for fields in said if fields["status"] != "answer"] == [
            ("failed", "handler")
        ]
        assert caplog.records[0].levelname == "ERROR"
        assert "tangerine" not in caplog.text + repr([reply.content for reply in grid.nodes[103].replies])

    def test_values_beyond_the_bound_are_clamped_and_nobody_else_sees_it(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A refusal would let the server search for the largest value of each node."""
        grid = grid_of(4, returning(with_value(1e300)))
        found = total(grid, bound=4.0).sums["model"].to_numpy_ndarrays()[0]
        others = exact(range(100, 103))[0]
        assert abs(found[0, 0] - (others[0, 0] + 4.0)) < 1e-5
        assert "1 of 7 values were beyond" in caplog.text
        lengths = [
            [len(reply.content["fedhist-answer"]["answer"].data) for reply in node.replies]
            for node in grid.nodes.values()
        ]
        assert lengths == [lengths[0]] * 4

    def test_a_weight_beyond_its_bound_too(self) -> None:
        assert total(grid_of(), weighted_by="num-examples", max_weight=3).weight == 1 + 2 + 3 * 6

    def test_a_missing_weight_is_a_failure(self) -> None:
        with pytest.raises(MaskingFailed, match="handler 100, 101"):
            total(grid_of(), weighted_by="examples", max_weight=3)

    def test_weights_of_zero_have_a_sum_and_no_mean(self) -> None:
        def answer(message: Message, context: Context) -> RecordDict:
            return RecordDict({"model": holding(message, context)["model"], "m": MetricRecord({"n": 0})})

        result = total(grid_of(4, answer), weighted_by="n", max_weight=1)
        assert result.weight == 0 and not result.sums["model"].to_numpy_ndarrays()[0].any()
        with pytest.raises(RoundFailed, match="no mean"):
            result.mean()


class TestWhatTheServerMayAsk:
    @pytest.mark.parametrize(
        ("settings", "problem"),
        [
            ({"bound": 0.0}, "the bound is 0.0"),
            ({"bound": float("nan")}, "the bound is nan"),
            ({"bound": 2.0**40}, "steps of an array of floats"),
            ({"bits": 41}, "bits is 41"),
            ({"max_weight": 5}, "both, or neither"),
            ({"weighted_by": "n"}, "both, or neither"),
            ({"weighted_by": "n", "max_weight": 2**32, "bound": 2**20}, "less than 2\\^63"),
            ({"node_ids": [100, 101]}, "over 2 nodes"),
            ({"dropout_share": 0.5}, "dropout_share is 0.5"),
            ({"node_ids": [100, 101, 102], "dropout_share": 0.4}, "can't rebuild secrets"),
            ({"like": RecordDict()}, "0 arrays"),
            ({"like": RecordDict({"a": ArrayRecord([np.array([True])])})}, "the type bool"),
            ({"content": RecordDict({SUM_RECORD: ConfigRecord()})}, "this one is ours"),
        ],
    )
    def test_a_mistake_is_refused_before_anybody_is_asked(self, settings: Any, problem: str) -> None:
        grid = grid_of()
        with pytest.raises(InvalidInput, match=problem):
            total(grid, **settings)
        assert grid.asked == []


def replies_to(grid: Any, node: int, messages: list[Message]) -> list[tuple[str, str]]:
    """What the node says to these messages, none of which may get any bytes."""
    found = []
    for message in messages:
        reply = grid.nodes[node].answer(message)
        assert not reply.content.array_records
        found.append(outcome(reply))
    return found


def file_of_103(folder: Path) -> dict[str, Any]:
    """Settings of a mod with which one node has a memory file. The others are virtual."""
    return {"memory": lambda context: folder / "memory" if context.node_id == 103 else None}


def record_of(message: Message) -> dict[str, Any]:
    return dict(message.content.config_records[SUM_RECORD])


class TestAServerThatIsUpToNoGood:
    def test_it_gets_no_answer_without_masks(self) -> None:
        grid = grid_of()
        reply = grid.nodes[100].answer(Message(QUESTION, 100, "train"))
        assert reply.has_error() and "masked sum only" in reply.error.reason

    def test_unless_the_node_says_that_it_may(self) -> None:
        grid = grid_of(require=False)
        reply = grid.nodes[100].answer(Message(QUESTION, 100, "train"))
        assert np.array_equal(reply.content["model"].to_numpy_ndarrays()[0], values_of(100)[0])

    def test_a_message_of_another_handler_passes_untouched(self) -> None:
        content = RecordDict({SUM_RECORD: ConfigRecord({"version": 1}), "model": QUESTION["model"]})
        reply = grid_of().nodes[100].answer(Message(content, 100, "evaluate"))
        assert reply.content == content

    @pytest.mark.parametrize("kept_in", ["file", "context"])
    def test_a_message_that_is_sent_again_gets_no_second_answer(self, kept_in: str, tmp_path: Path) -> None:
        grid = grid_of(**(file_of_103(tmp_path) if kept_in == "file" else {}))
        total(grid)
        again = [message for message in grid.asked if message.metadata.dst_node_id == 103]
        assert [stage_of(message) for message in again] == STAGES
        first, *later = replies_to(grid, 103, again)
        assert first == ("refused", "second-request")
        assert all(status == "refused" for status, _ in later)

    @pytest.mark.parametrize("stage", STAGES)
    def test_a_message_that_is_sent_twice_at_once_is_answered_once(self, stage: str, tmp_path: Path) -> None:
        """The second may end the session; it gets nothing out of it."""
        grid = grid_of(**file_of_103(tmp_path))
        second: list[Message] = []

        def twice(message: Message, node: Any) -> list[Message]:
            again, first = deepcopy(message), node.answer(message)
            second.append(node.answer(again))
            return [first]

        grid.nodes[103].fault = at(stage, twice)
        total(grid)
        assert outcome(second[0])[0] == "refused" and not second[0].content.array_records

    def test_a_name_is_used_once_whatever_is_asked_under_it(self, tmp_path: Path) -> None:
        grid = grid_of(**file_of_103(tmp_path))
        total(grid)
        first = next(m for m in grid.asked if m.metadata.dst_node_id == 103)
        changed = record_of(first)
        changed["asks"] = changed["asks"].replace('"bound": 8.0', '"bound": 4.0')
        assert changed != record_of(first)
        first.content.config_records[SUM_RECORD] = ConfigRecord(changed)
        assert replies_to(grid, 103, [first]) == [("refused", "second-request")]

    def test_more_sums_than_the_node_allows(self, tmp_path: Path) -> None:
        grid = grid_of(4, max_sums=2, **file_of_103(tmp_path))
        total(grid)
        total(grid)
        with pytest.raises(MaskingFailed) as failure:
            total(grid)
        assert failure.value.left_out == {"over-budget": (100, 101, 102, 103)}

    def test_another_content_than_the_others_get(self) -> None:
        """A model made for one node could have its values stand out in the sum."""

        def swap(message: Message, node: Any) -> list[Message]:
            message.content["model"] = ArrayRecord([np.ones((2, 2)), np.zeros(3, dtype=np.float32)])
            return [node.answer(message)]

        grid = grid_of()
        grid.nodes[103].fault = at("masking", swap)
        assert total(grid).left_out == {"other-content": (103,)}

    def test_another_group_of_messages_than_the_others_get(self) -> None:
        """Handlers may read a round's number off the group, and are not to be led by one made for a node."""
        seen = []

        def answer(message: Message, context: Context) -> RecordDict:
            seen.append(message.metadata.group_id)
            return holding(message, context)

        def regroup(message: Message, node: Any) -> list[Message]:
            message.metadata.__dict__["_group_id"] = "7"
            assert message.metadata.group_id == "7"
            return [node.answer(message)]

        grid = grid_of(answer=answer)
        grid.nodes[103].fault = at("masking", regroup)
        assert total(grid).left_out == {"malformed": (103,)}
        assert len(seen) == 7
        assert len(set(seen)) == 1

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ('"bound": 8.0', '"bound": 4.0'),
            ('"bits": 20', '"bits": 19'),
            ('"participants": 8', '"participants": 9'),
        ],
    )
    def test_another_question_than_the_others_get(self, old: str, new: str) -> None:
        """Even when the server lies to one node all the way: nothing that the node makes fits the others'."""

        def lie(message: Message, node: Any) -> list[Message]:
            fields = record_of(message)
            assert old in fields["asks"]
            fields["asks"] = fields["asks"].replace(old, new)
            message.content.config_records[SUM_RECORD] = ConfigRecord(fields)
            return [node.answer(message)]

        grid = grid_of()
        grid.nodes[103].fault = lie
        assert_sum_of(total(grid), [node for node in range(100, 108) if node != 103])
        assert all(outcome(reply)[0] != "answer" for reply in grid.nodes[103].replies[1:])

    def test_another_content_all_the_way(self) -> None:
        """The digest of the content is part of the question, so the node ends up alone with it."""
        other = RecordDict({"model": ArrayRecord([np.ones((2, 2)), np.zeros(3, dtype=np.float32)])})

        def lie(message: Message, node: Any) -> list[Message]:
            fields = record_of(message)
            fields["asks"] = fields["asks"].replace(content_digest(QUESTION), content_digest(other))
            message.content["model"] = other["model"]
            message.content.config_records[SUM_RECORD] = ConfigRecord(fields)
            return [node.answer(message)]

        grid = grid_of()
        grid.nodes[103].fault = lie
        assert_sum_of(total(grid), [node for node in range(100, 108) if node != 103])
        assert [outcome(reply)[0] for reply in grid.nodes[103].replies] == ["answer"]

    def test_a_question_for_another_handler(self) -> None:
        grid = grid_of()
        total(grid)
        first = next(m for m in grid.asked if m.metadata.dst_node_id == 103)
        fields = record_of(first)
        fields["asks"] = fields["asks"].replace('"message-type": "train"', '"message-type": "query"')
        first.content.config_records[SUM_RECORD] = ConfigRecord(fields)
        assert replies_to(grid, 103, [first]) == [("refused", "malformed")]

    @pytest.mark.parametrize(
        "change",
        [
            {"version": 2},
            {"asks": "{}"},
            {"asks": "["},
            {"asks": 3},
            {"stage": "sleeping"},
            {"asks": "[" * 100_000},
        ],
    )
    def test_nonsense(self, change: Mapping[str, Any]) -> None:
        grid = grid_of()
        total(grid)
        first = next(m for m in grid.asked if m.metadata.dst_node_id == 103)
        first.content.config_records[SUM_RECORD] = ConfigRecord(record_of(first) | dict(change))
        assert replies_to(grid, 103, [first]) == [("refused", "malformed")]

    def test_a_small_cohort(self) -> None:
        with pytest.raises(MaskingFailed) as failure:
            total(grid_of(5, minimum_participants=5))
        assert failure.value.left_out == {"few-participants": tuple(range(100, 105))}
        assert len(total(grid_of(5, minimum_participants=5), dropout_share=0.0).nodes) == 5

    def test_fewer_colluding_nodes_than_the_node_fears(self) -> None:
        with pytest.raises(MaskingFailed, match="small-corrupt-share"):
            total(grid_of(minimum_corrupt_share=0.1))

    def test_a_node_without_a_memory_file_takes_no_part(self, caplog: pytest.LogCaptureFixture) -> None:
        with pytest.raises(MaskingFailed, match="no-memory"):
            total(grid_of(simulated=lambda context: False))
        assert "memory-path" in caplog.text

    def test_masks_without_signatures_where_the_node_has_a_key(self) -> None:
        def identity(context: Context) -> Identity:
            return IDENTITIES[context.node_id - 100]

        with pytest.raises(MaskingFailed, match="not-signed"):
            total(grid_of(identity=identity))
        with pytest.raises(MaskingFailed, match="no-identity"):
            total(grid_of(), directory=IDENTITIES[0].directory)

    def test_a_few_keys_of_the_directory(self) -> None:
        """Of eight keys a node wants to see five, unless it says less."""
        grid = grid_of(identity=lambda context: IDENTITIES[context.node_id - 100])
        with pytest.raises(MaskingFailed, match="few-participants"):
            total(grid, node_ids=range(100, 104), directory=IDENTITIES[0].directory)

    def test_what_remains_invented_nodes_under_plain_masks(self) -> None:
        """The attack that docs/masking-your-messages.md names: all other nodes are the server's."""

        def answer(message: Message, context: Context) -> RecordDict:
            arrays = [array * (context.node_id == 100) for array in values_of(context.node_id)]
            return RecordDict({"model": ArrayRecord(arrays)})

        found = total(grid_of(3, answer)).sums["model"].to_numpy_ndarrays()[0]
        assert np.abs(found - values_of(100)[0]).max() < 1e-5

    def test_what_remains_two_cohorts_that_differ_in_one_node(self) -> None:
        grid = grid_of()
        with_it, without = total(grid), total(grid, node_ids=range(101, 108))
        found = with_it.sums["model"].to_numpy_ndarrays()[0] - without.sums["model"].to_numpy_ndarrays()[0]
        assert np.abs(found - values_of(100)[0]).max() < 1e-5


class TestTheNodesLog:
    def lines(self, grid: Any, caplog: pytest.LogCaptureFixture) -> list[str]:
        """What the nodes logged in a sum over them."""
        caplog.clear()
        with pytest.raises(MaskingFailed):
            total(grid)
        return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]

    def test_a_refusal_is_a_line_like_those_of_our_own_rounds(
        self, caplog: pytest.LogCaptureFixture, tmp_path: Path
    ) -> None:
        grid = grid_of(4, max_sums=0, memory=lambda context: tmp_path / f"{context.node_id}.db")
        first, *others = self.lines(grid, caplog)
        name = str(grid.asked[0].metadata.group_id)
        assert first == (
            f"Flower run 77, sum {name}, advertising: refused, over-budget: {Refusal.OVER_BUDGET.in_words}; "
            "it takes part in 0 masked sums at the most."
        )
        assert len(others) == 3

    def test_it_has_the_time_where_nobody_set_up_logging(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(logging.getLogger("fedhist"), "propagate", False)
        grid_of().nodes[100].answer(Message(QUESTION, 100, "train"))
        (line,) = capsys.readouterr().err.splitlines()
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} fedhist: Flower run 77, train: refused, not-masked: .*",
            line,
        )

    def test_a_request_that_can_t_be_read(self, caplog: pytest.LogCaptureFixture) -> None:
        content = RecordDict({SUM_RECORD: ConfigRecord({"version": 2})})
        grid_of().nodes[100].answer(Message(content, 100, "train"))
        assert f"Flower run 77, train: refused, malformed: {Refusal.MALFORMED.in_words}." in caplog.text


class TestCrashes:
    def test_a_node_that_dies_in_its_handler_is_never_asked_again(self, tmp_path: Path) -> None:
        """Its session is gone from the disk before the handler runs, so it can't mask twice with the same masks."""

        class Killed(BaseException):
            pass

        calls: list[int] = []

        def answer(message: Message, context: Context) -> RecordDict:
            calls.append(context.node_id)
            if context.node_id == 103 and calls.count(103) == 1:
                raise Killed
            return holding(message, context)

        def dies(message: Message, node: Any) -> list[Message]:
            again = deepcopy(message)
            with pytest.raises(Killed):
                node.answer(message)
            node.context = context_of(node=103)
            assert outcome(node.answer(again)) == ("refused", "no-session")
            return [error_reply(again)]

        grid = grid_of(8, answer, **file_of_103(tmp_path))
        grid.nodes[103].fault = at("masking", dies)
        assert total(grid).left_out == {"error": (103,)}
        assert calls.count(103) == 1

    def test_a_file_that_is_no_memory_is_the_nodes_own_affair(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        file = tmp_path / "notes.txt"
        file.write_text("dear diary " * 1000)
        grid = grid_of()
        grid.nodes[103].app = app_of(memory=lambda context: file)
        assert total(grid).left_out == {"bad-memory": (103,)}
        assert "can't be used" in caplog.text and file.read_text() == "dear diary " * 1000


class TestTheNodesConfiguration:
    @pytest.mark.parametrize(
        ("config", "virtual"),
        [
            ({}, False),
            ({"partition_id": 1}, False),
            ({"partition_id": 1, "num_partitions": 4}, True),
            ({"partition_id": 1, "num_partitions": 4, "memory_path": "m"}, False),
            ({"partition_id": 1, "num_partitions": 4, "data_path": "d.csv"}, False),
        ],
    )
    def test_which_nodes_are_virtual(self, config: dict[str, Any], virtual: bool) -> None:
        assert masking.is_virtual(context_of(**config)) is virtual

    def test_the_memory_file_is_the_configurations(self, tmp_path: Path) -> None:
        grid = grid_of(4, simulated=lambda context: False)
        for number, node in grid.nodes.items():
            node.context = context_of(node=number, memory_path=str(tmp_path / f"{number}.db"))
        total(grid)
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            f"{number}.db" for number in range(100, 104)
        ]

    def test_it_may_ask_for_more_than_the_app(self) -> None:
        grid = grid_of(5, minimum_participants=4)
        grid.nodes[101].context = context_of(node=101, minimum_participants=5, the_apps_own="x")
        grid.nodes[102].context = context_of(node=102, minimum_participants=3, minimum_corrupt_share=0.01)
        with pytest.raises(MaskingFailed) as failure:
            total(grid, dropout_share=0.2, corrupt_share=0.0)
        assert failure.value.left_out == {"few-participants": (101,), "small-corrupt-share": (102,)}

    def test_keys_for_signed_masks_are_the_configurations(self, tmp_path: Path) -> None:
        keys = [Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in range(4)]
        directory = b"\n".join(
            key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) for key in keys
        )
        (tmp_path / "all.pub").write_bytes(directory)
        grid = grid_of(4)
        for number, (node, key) in enumerate(zip(grid.nodes.values(), keys, strict=True)):
            secret = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
            (tmp_path / str(number)).write_bytes(secret)
            paths = {"identity_path": tmp_path / str(number), "directory_path": tmp_path / "all.pub"}
            node.context = context_of(node=100 + number, **{name: str(path) for name, path in paths.items()})
        result = total(grid, directory=parse_directory(directory, name="all.pub"))
        assert_sum_of(result, range(100, 104))
        with pytest.raises(MaskingFailed, match="not-signed"):
            total(grid)

    def test_settings_of_the_mod_are_checked(self) -> None:
        with pytest.raises(InvalidInput, match="max_sums is -1"):
            masking.mod(max_sums=-1)
        with pytest.raises(InvalidInput, match="smallest corrupt share"):
            masking.mod(minimum_corrupt_share=0.9)
