"""A real deployment: TLS, registered node keys, a node that is killed in the middle of a round, and no leftovers.

Masked and signed rounds between processes are those of the page on deployments, which a test runs.

What is waited for are states: a node that has opened its list of items is inside a round. The list of the node that is
to die is a pipe, so it stays there until the test lets go.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from leftovers import ends_soon, processes_of

from fedhist import RoundFailed
from tests.support.api import (
    ITEMS,
    Demo,
    Federation,
    Programs,
    deferred_interrupts,
    descendants,
    free_ports,
    make_certificates,
    make_node_key,
    open_federation,
    read_run,
    write_app,
    write_data,
)
from tests.support.api import demo_run_settings as run_settings

LIMIT_SECONDS = 180.0
# Longer than a round takes on a busy machine with two processors.
ROUND_SECONDS = 60.0

# Real processes on a busy machine: longer than the limit of other tests, and still a limit.
pytestmark = pytest.mark.timeout(400)


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="the machine has no /proc to look for leftovers in"
)


class TestCertificates:
    def test_the_certificate_is_for_loopback_and_trusted_through_the_authority(self, tmp_path: Path) -> None:
        files = make_certificates(tmp_path)
        authority, certificate = (
            x509.load_pem_x509_certificate(path.read_bytes()) for path in (files.authority, files.certificate)
        )
        certificate.verify_directly_issued_by(authority)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == ["localhost"]
        assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(files.certificate, files.key)

    def test_private_keys_are_for_the_owner_alone(self, tmp_path: Path) -> None:
        secrets = (make_certificates(tmp_path).key, make_node_key(tmp_path, "n").private)
        assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o600}

    def test_a_node_key_is_a_pair_in_the_format_of_ssh(self, tmp_path: Path) -> None:
        files = make_node_key(tmp_path, "n")
        private = load_ssh_private_key(files.private.read_bytes(), password=None)
        assert private.public_key() == load_ssh_public_key(files.public.read_bytes())


class TestProcesses:
    PARENT = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )

    @pytest.fixture
    def programs(self, tmp_path: Path) -> Iterator[Programs]:
        programs = Programs(tmp_path, polite_seconds=0.5)
        yield programs
        programs.stop()

    def start(self, programs: Programs, code: str) -> None:
        program = programs.start("one", [sys.executable, "-c", code], os.environ)
        programs.wait_until(lambda: "ready" in program.log.read_text(), "its start", seconds=60)

    def test_stopping_reaches_grandchildren_in_sessions_of_their_own(self, programs: Programs) -> None:
        self.start(programs, self.PARENT)
        (child,) = descendants([programs.started[0].pid])
        programs.stop()
        assert not programs.started[0].running
        assert ends_soon(lambda: child in descendants([1, os.getpid()]))

    def test_a_program_that_ends_early_is_told_with_its_last_words(self, programs: Programs) -> None:
        programs.start("one", [sys.executable, "-c", "print('no such key'); raise SystemExit(3)"], os.environ)
        with pytest.raises(RoundFailed, match=r"one ended with code 3 before a miracle.*no such key"):
            programs.wait_until(lambda: False, "a miracle", seconds=60)

    def test_a_state_that_does_not_come_is_a_failure(self, programs: Programs) -> None:
        with pytest.raises(RoundFailed, match="in vain for a miracle"):
            programs.wait_until(lambda: False, "a miracle", seconds=0.2)

    def test_an_interrupt_waits_for_the_end_of_the_block(self) -> None:
        done = []
        with pytest.raises(KeyboardInterrupt), deferred_interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("all of it")
        assert done == ["all of it"]


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
    demo = Demo(nodes=3, users=400)
    configs = write_data(demo, tmp_path)
    pipe = Pipe(tmp_path / "pipe.txt")
    configs[2]["items-path"] = str(pipe.path)
    settings = run_settings(demo, items_file=tmp_path / "items.txt", out=tmp_path / "result")
    app = write_app(tmp_path / "app", settings | {"timeout": ROUND_SECONDS})
    try:
        with open_federation(tmp_path, configs) as federation:
            run = federation.submit(app)
            federation.programs.wait_until(pipe.is_being_read, "the third node's turn", seconds=LIMIT_SECONDS)
            federation.programs.kill(federation.nodes[2])
            refuses_strangers(federation, tmp_path)
            federation.wait(run, seconds=LIMIT_SECONDS)
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
    # The killed node's own child sees that its parent is gone, and ends by itself within seconds.
    assert ends_soon(lambda: processes_of(tmp_path))


def refuses_strangers(federation: Federation, folder: Path) -> None:
    """A node whose key nobody registered is not let in."""
    key = make_node_key(folder, "stranger")
    stranger = federation.start_node("stranger", key, free_ports(1)[0], {"data-path": "none.csv"})
    with pytest.raises(RoundFailed, match="stranger ended"):
        federation.programs.wait_until(
            lambda: "SuperNode ID" in stranger.log.read_text(), "it to be let in", seconds=LIMIT_SECONDS
        )


START = """
import signal, sys
# A child inherits ignored signals, as under nohup.
signal.signal(signal.SIGINT, signal.default_int_handler)
from fedhist.commands.cli import main
from fedhist.simulations.deployment import demo
"""
STINGY_NODES = "demo.Demo.node_limit = 0.5\n"
RUN = "main(sys.argv[1:])\n"


def demonstration(code: str, keep: Path) -> subprocess.Popen[str]:
    """The command with one node, in a process of its own."""
    arguments = ["demo-deployment", "--nodes", "1", "--users", "20", "--keep", str(keep)]
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@needs_proc
@pytest.mark.slow
def test_a_run_that_the_nodes_refuse_fails_although_flower_took_it(tmp_path: Path) -> None:
    keep = tmp_path / "kept"
    with demonstration(START + STINGY_NODES + RUN, keep) as child:
        out, err = child.communicate(timeout=LIMIT_SECONDS)
    assert child.returncode == 4, err
    assert "finished:failed" in err
    assert "1 refused (over-budget)" in err
    assert out == ""
    # The node's own log has the line, with the time, the run and the file that decided.
    (log,) = keep.rglob("node-0.log")
    refused = r"\d{4}-\d\d-\d\d \S+ fedhist: Flower run \d+, run \w+, round select: refused, over-budget: .*\.memory\."
    assert len(re.findall(refused, log.read_text())) == 1, log.read_text()
    assert not (keep / "result").exists()
    assert processes_of(keep) == {}


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "polite-kill"])
def test_an_interrupted_demonstration_leaves_no_processes(tmp_path: Path, number: signal.Signals) -> None:
    keep = tmp_path / "kept"
    with demonstration(START + RUN, keep) as child:
        assert child.stderr is not None
        # The SuperLink runs when this line comes.
        said = next(line for line in child.stderr if line.startswith("registering"))
        assert processes_of(keep), said
        child.send_signal(number)
        out, err = child.communicate(timeout=LIMIT_SECONDS)
    assert child.returncode == 130, err
    assert "interrupted" in err
    assert out == ""
    assert processes_of(keep) == {}
