"""A real deployment on the loopback interface: a node that is killed in the middle of a round, and no leftovers.

TLS, registered node keys, masked and signed rounds between processes are those of the page on deployments, which a test
runs.

What is waited for are states: a node that has opened its list of items is inside a round. The list of the node that is
to die is a pipe, so it stays there until the test lets go.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from leftovers import processes_of

from fedhist import RoundFailed
from tests.support.api import DEMO_ITEMS as ITEMS
from tests.support.api import Deployment, open_deployment, read_run, write_app, write_example
from tests.support.refusals import refused

LIMIT_SECONDS = 180.0
# Longer than a round takes on a busy machine with two processors.
ROUND_SECONDS = 60.0

# Real processes on a busy machine: longer than the limit of other tests, and still a limit.
pytestmark = pytest.mark.timeout(400)


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="the machine has no /proc to look for leftovers in"
)


@needs_proc
class TestProcesses:
    PARENT = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    STUBBORN = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )

    @pytest.fixture
    def deployment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
        monkeypatch.setattr("fedhist.simulations.deployment._POLITE_SECONDS", 0.5)
        (tmp_path / "logs").mkdir()
        deployment = Deployment(tmp_path, 0)
        yield deployment
        deployment.stop()

    def start(self, deployment: Deployment, code: str) -> None:
        log = deployment.folder / "logs" / "one.log"
        deployment._start("one", [sys.executable, "-c", code])
        deployment.wait_until(lambda: "ready" in log.read_text(), "its start", seconds=60)

    def test_stopping_reaches_grandchildren_in_sessions_of_their_own(self, deployment: Deployment) -> None:
        self.start(deployment, self.PARENT)
        assert len(processes_of(deployment.folder)) == 2
        deployment.stop()
        assert processes_of(deployment.folder) == {}

    def test_and_their_children_after_a_program_was_killed(self, deployment: Deployment) -> None:
        self.start(deployment, self.PARENT)
        deployment.kill("one")
        assert len(processes_of(deployment.folder)) == 1
        deployment.stop()
        assert processes_of(deployment.folder) == {}

    def test_what_does_not_listen_to_a_polite_signal_is_killed(self, deployment: Deployment) -> None:
        self.start(deployment, self.STUBBORN)
        deployment.stop()
        assert deployment.programs["one"].returncode == -signal.SIGKILL

    def test_no_other_process_is_touched(self, deployment: Deployment) -> None:
        self.start(deployment, self.PARENT)
        other = Deployment(deployment.folder.with_name("other"), 0)
        other.stop()
        assert len(processes_of(deployment.folder)) == 2

    def test_an_interrupt_waits_for_the_end_of_the_stop(self, deployment: Deployment) -> None:
        self.start(deployment, self.STUBBORN)
        signaller = "import os, signal, sys, time; time.sleep(.2); os.kill(int(sys.argv[1]), signal.SIGINT)"
        with subprocess.Popen([sys.executable, "-c", signaller, str(os.getpid())]):
            with pytest.raises(KeyboardInterrupt):
                deployment.stop()
            assert processes_of(deployment.folder) == {}

    def test_a_program_that_ends_early_is_reported_with_what_it_said(self, deployment: Deployment) -> None:
        deployment._start("one", [sys.executable, "-c", "print('no such key'); raise SystemExit(3)"])
        with refused(RoundFailed, "process-ended") as caught:
            deployment.wait_until(lambda: False, "a miracle", seconds=60)
        assert caught.value.__notes__ == ["\nno such key"]

    def test_a_state_that_does_not_come_is_a_failure(self, deployment: Deployment) -> None:
        with refused(RoundFailed, "timed-out"):
            deployment.wait_until(lambda: False, "a miracle", seconds=0.2)


def test_every_node_of_the_example_has_as_many_users_as_were_asked_for(tmp_path: Path) -> None:
    """A user without any item has no row in a file."""
    settings, configs = write_example(tmp_path, nodes=3, users=200)
    rows = [row for one in configs for row in Path(str(one["data-path"])).read_text().splitlines()[1:]]
    assert len({row.split(",")[0] for row in rows}) == settings["users"] == 600
    assert {row.split(",")[1] for row in rows} == set(ITEMS)


class Pipe:
    """A list of items that a node begins to read and does not come to the end of."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._end: int | None = None

    def is_being_read(self) -> bool:
        """Opening a pipe for writing without waiting works only when somebody reads it."""
        if self._end is None:
            try:
                self._end = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                assert error.errno == errno.ENXIO
        return self._end is not None

    def close(self) -> None:
        if self._end is not None:
            os.close(self._end)


@needs_proc
@pytest.mark.slow
def test_a_node_killed_in_the_middle_of_a_round_is_left_out(tmp_path: Path) -> None:
    settings, configs = write_example(tmp_path, nodes=3, users=400)
    pipe = Pipe(tmp_path / "pipe.txt")
    configs[2]["items-path"] = str(pipe.path)
    settings |= {"timeout": ROUND_SECONDS, "out": str(tmp_path / "result")}
    app = write_app(tmp_path / "app", settings)
    try:
        with open_deployment(tmp_path, configs) as deployment:
            run = deployment.submit(app)
            deployment.wait_until(pipe.is_being_read, "the third node's turn", seconds=LIMIT_SECONDS)
            deployment.kill("node-2")
            deployment.wait(run, seconds=LIMIT_SECONDS)
    finally:
        pipe.close()
    outcome = read_run(tmp_path / "result")
    select, release = (outcome.document["rounds"][name] for name in ("select", "release"))
    assert (select["nodes"], select["answered"]) == (3, 2)
    assert sum(select["faults"].values()) == 1
    assert release["answered"] == 2
    assert settings["minimum-cohort"] <= release["users"] <= 800
    assert outcome.labels == list(ITEMS)
    assert outcome.document["private"]
    assert not outcome.document["simulation_only"]
    assert processes_of(tmp_path) == {}


@needs_proc
@pytest.mark.slow
def test_a_run_that_the_nodes_refuse_fails_although_flower_took_it(tmp_path: Path) -> None:
    settings, configs = write_example(tmp_path, nodes=1, users=20)
    configs[0]["max-epsilon"] = 0.5
    app = write_app(tmp_path / "app", settings | {"out": str(tmp_path / "result")})
    with open_deployment(tmp_path, configs) as deployment:
        run = deployment.submit(app)
        with refused(RoundFailed, "process-ended") as caught:
            deployment.wait(run, seconds=LIMIT_SECONDS)
    assert "1 refused (over-budget)" in "".join(caught.value.__notes__)
    # The node's own log has the line, with the time, the run and the file that decided.
    line = r"\d{4}-\d\d-\d\d \S+ fedhist: Flower run \d+, run \w+, round select: refused, over-budget: .*\.memory\."
    log = (tmp_path / "logs" / "node-0.log").read_text()
    assert len(re.findall(line, log)) == 1, log
    assert not (tmp_path / "result").exists()
    assert processes_of(tmp_path) == {}


START = """
import signal, sys
# A child inherits ignored signals, as under nohup.
signal.signal(signal.SIGINT, signal.default_int_handler)
from fedhist.commands.cli import main
main(sys.argv[1:])
"""


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "polite-kill"])
def test_an_interrupted_demonstration_leaves_no_processes(tmp_path: Path, number: signal.Signals) -> None:
    keep = tmp_path / "kept"
    arguments = ["demo-deployment", "--nodes", "1", "--users", "20", "--keep", str(keep)]
    with subprocess.Popen(
        [sys.executable, "-c", START, *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stderr is not None
        # The SuperLink runs when this line comes.
        said = next(line for line in child.stderr if re.match(r"starting \d+ SuperNodes", line))
        assert processes_of(keep), said
        child.send_signal(number)
        out, err = child.communicate(timeout=LIMIT_SECONDS)
    assert child.returncode == 130, err
    assert "interrupted" in err
    assert out == ""
    assert processes_of(keep) == {}
