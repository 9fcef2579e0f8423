"""One view of a node's data for one charge: also when it is asked again, set back, killed, or asked twice at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from local_grid import LocalGrid, at, context_of, data_of, message_of, outcome

from fedhist import Plan, SparsePopulation
from fedhist.client import Policy
from fedhist.server import run_on_grid
from tests.asking import release_at
from tests.builders import population_of
from tests.support.api import MAX_ANSWERS, Envelope, MemoryFile, Threshold, decode
from tests.support.api import app_module as client_app

OPEN = Plan(
    users=9,
    domain="open",
    release="truncated-laplace",
    selector="fixed",
    threshold=5,
    min_threshold=1,
    max_threshold=60,
)
REAL = 3
MASKED = Plan(users=60, items=6, masking="secagg", participants=12, dropout_share=0.2)


def release(run: str = "one") -> Envelope:
    return Envelope(run=run, request=release_at(OPEN, Threshold(steps=5, bits=OPEN.grid_bits)))


class TestAskedAgain:
    """One user with sixty items, of which clipping keeps five."""

    WHOLE = population_of(np.ones((1, 60), dtype=np.int64))

    def app(self, file: Path | None = None, load: Any = lambda context: TestAskedAgain.WHOLE) -> ClientApp:
        return client_app.mount(ClientApp(), load, memory=lambda context: file)

    @pytest.fixture(params=[False, True], ids=["in its context", "in a file"])
    def file(self, request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
        """Where the node remembers."""
        return tmp_path / "m.db" if request.param else None

    def test_sixty_asks_show_one_view(self, file: Path | None) -> None:
        app, context = self.app(file), context_of()
        answers = [data_of(app(message_of(release()), context)) for _ in range(60)]
        assert len(set(answers)) == 1
        shown = decode(answers[0], release().request)[0].keyed
        assert shown is not None and len(shown.keys) == 5

    def test_another_run_and_another_node_draw_for_themselves(self, tmp_path: Path) -> None:
        """Of twelve ways to keep five of sixty items: eight alike have a chance below 10^-7."""
        app = self.app(tmp_path / "m.db")
        assert len({data_of(app(message_of(release(run)), context_of())) for run in "abcdefgh"}) > 1
        assert len({data_of(self.app()(message_of(release()), context_of())) for _ in "abcdefgh"}) > 1

    def test_data_that_changed_is_not_looked_at_again(self, file: Path | None) -> None:
        """The difference of two exact sums is what came in between, and a refusal would tell that something did."""
        context, people = context_of(), [1]

        def load(context: Context) -> SparsePopulation:
            return population_of(np.ones((people[0], 4), dtype=np.int64))

        app = self.app(file, load)
        first = app(message_of(release()), context)
        for people[0] in (2, 1, 3):
            assert data_of(app(message_of(release()), context)) == data_of(first)
        assert data_of(app(message_of(release("two")), context)) != data_of(first)

    def test_a_node_without_users_says_so_once_and_for_all(self, file: Path | None) -> None:
        """Or somebody could ask until the first user is there."""
        context = context_of()
        people = [SparsePopulation(self.WHOLE.histograms.rows(0, 0), labels=self.WHOLE.labels)]
        app = self.app(file, lambda context: people[0])
        assert outcome(app(message_of(release()), context)) == ("refused", "no-users")
        people[0] = self.WHOLE
        assert outcome(app(message_of(release()), context)) == ("refused", "no-users")
        assert outcome(app(message_of(release("two")), context))[0] == "answer"

    def test_an_answer_that_is_no_longer_kept_is_not_made_again(self, file: Path | None) -> None:
        app, context = self.app(file), context_of()
        for number in range(MAX_ANSWERS + 1):
            assert outcome(app(message_of(release(f"run {number}")), context))[0] == "answer"
        assert outcome(app(message_of(release("run 0")), context)) == ("refused", "second-request")
        assert outcome(app(message_of(release("run 1")), context))[0] == "answer"

    def test_a_request_that_todays_floors_forbid_is_not_answered_again(self, tmp_path: Path) -> None:
        policy = [Policy()]
        app = client_app.mount(
            ClientApp(),
            lambda context: self.WHOLE,
            policy=lambda context: policy[0],
            memory=lambda context: tmp_path / "m.db",
        )
        assert outcome(app(message_of(release()), context_of()))[0] == "answer"
        policy[0] = Policy(minimum_masking="secagg")
        assert outcome(app(message_of(release()), context_of())) == ("refused", "not-masked")


def real_grid(lab: Any, folder: Path, faults: dict[int, Any] | None = None) -> Any:
    """Twelve nodes, of which the fourth has a memory file as a real node has; the others are virtual."""
    whole = lab.population()

    def app(place: int) -> ClientApp:
        return client_app.mount(
            ClientApp(),
            lambda context: lab.part(whole, place, 12),
            memory=lambda context: folder / "3.memory" if place == REAL else None,
            simulated=lambda context: place != REAL,
        )

    return LocalGrid.of(map(app, range(12)), faults)


STAGES = ("sharing", "masking", "unmasking")


class TestSetBack:
    @pytest.mark.parametrize("stage", STAGES)
    def test_a_node_set_back_by_flower_does_not_mask_twice(
        self, lab: Any, tmp_path: Path, stage: str
    ) -> None:
        """Flower stores a node's state after its reply has left, and goes on when that fails."""
        second: list[tuple[str, str]] = []

        def set_back(message: Message, node: Any) -> list[Message]:
            before = deepcopy(node.context)
            first = node.answer(deepcopy(message))
            node.context = before
            second.append(outcome(node.answer(deepcopy(message))))
            node.context = context_of(node=node.context.node_id)
            second.append(outcome(node.answer(deepcopy(message))))
            return [first]

        grid = real_grid(lab, tmp_path, {REAL: at(stage, set_back)})
        run_on_grid(grid, MASKED)
        assert second and {status for status, _ in second} == {"refused"}

    def test_flowers_state_holds_nothing_of_a_node_with_a_file(self, lab: Any, tmp_path: Path) -> None:
        grid = real_grid(lab, tmp_path)
        run_on_grid(grid, MASKED)
        assert not grid.nodes[100 + REAL].context.state.config_records

    def test_a_node_that_restarts_between_stages_stays_in_the_sum(self, lab: Any, tmp_path: Path) -> None:
        def restart(message: Message, node: Any) -> list[Message]:
            node.context = context_of(node=node.context.node_id)
            return [node.answer(message)]

        reports: list[Any] = []
        run_on_grid(real_grid(lab, tmp_path, {REAL: restart}), MASKED, on_report=reports.append)
        assert [report.answered for report in reports] == [12, 12]


class Killed(BaseException):
    """Not an Exception, so that nothing on the way up stops it."""


class TestKilled:
    @pytest.mark.parametrize("stage", STAGES)
    @pytest.mark.parametrize("moment", ["before the next state is kept", "between commit and answer"])
    def test_a_killed_step_is_never_repeated(
        self, lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, moment: str
    ) -> None:
        keep, second = MemoryFile.keep, list[tuple[str, str]]()

        def killed(memory: MemoryFile, run: str, state: bytes) -> None:
            if moment == "between commit and answer":
                keep(memory, run, state)
            raise Killed

        def die_and_come_back(message: Message, node: Any) -> list[Message]:
            with monkeypatch.context() as patched:
                patched.setattr(MemoryFile, "keep", killed)
                with pytest.raises(Killed):
                    node.answer(deepcopy(message))
            second.append(outcome(node.answer(deepcopy(message))))
            return []

        reports: list[Any] = []
        grid = real_grid(lab, tmp_path, {REAL: at(stage, die_and_come_back)})
        run_on_grid(grid, MASKED, on_report=reports.append)
        assert second and {status for status, _ in second} == {"refused"}
        assert reports[0].answered == (12 if stage == "unmasking" else 11)

    def test_what_fails_half_way_is_not_repeated_either(self, lab: Any, tmp_path: Path) -> None:
        """The data can't be read when the vector is due; a moment later it can."""
        readable = [False]

        def load(context: Context) -> Any:
            if not readable[0]:
                raise OSError
            return lab.part(lab.population(), 3, 12)

        outcomes: list[tuple[str, str]] = []

        def ask_twice(message: Message, node: Any) -> list[Message]:
            for _ in range(2):
                outcomes.append(outcome(node.answer(deepcopy(message))))
                readable[0] = True
            return []

        grid = real_grid(lab, tmp_path, {REAL: at("masking", ask_twice)})
        grid.nodes[100 + REAL].app = client_app.mount(
            ClientApp(), load, memory=lambda context: tmp_path / "3.memory"
        )
        run_on_grid(grid, MASKED)
        # Round 1 costs nothing; round 2 finds the data readable.
        assert MemoryFile(tmp_path / "3.memory").read().spent.epsilon == MASKED.epsilon
        assert outcomes[:2] == [("failed", "failed"), ("refused", "no-session")]


class TestTwoAtOnce:
    @pytest.mark.parametrize("stage", ["advertising", *STAGES])
    def test_of_two_messages_at_once_one_is_answered(self, lab: Any, tmp_path: Path, stage: str) -> None:
        statuses: list[list[str]] = []

        def twice(message: Message, node: Any) -> list[Message]:
            def ask(copy: Message) -> Message:
                return node.app(copy, context_of(node=node.context.node_id))

            with ThreadPoolExecutor(2) as pool:
                replies = list(pool.map(ask, [deepcopy(message), deepcopy(message)]))
            statuses.append(sorted(outcome(reply)[0] for reply in replies))
            return [reply for reply in replies if outcome(reply)[0] == "answer"]

        run_on_grid(real_grid(lab, tmp_path, {REAL: at(stage, twice)}), MASKED)
        assert statuses and all(pair == ["answer", "refused"] for pair in statuses)
        # A second roster that comes after the first one was answered ends the session, and no vector leaves.
        spent = MemoryFile(tmp_path / "3.memory").read().spent.epsilon
        assert spent == pytest.approx(1.1) or (stage == "sharing" and spent < 1.1)
