"""Which Ray a simulation runs on, and what becomes of a round when one of its workers is killed. Really run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from time import monotonic, sleep

import pytest

from fedhist import InvalidInput
from tests.loopback_cluster import SECONDS, environment, loopback_cluster
from tests.support.api import check_address, init_args, on_loopback
from tests.support.refusals import refused

RUN = [sys.executable, "-m", "fedhist", "run", "--engine", "flower-simulation", "--seed", "1"]


def ended(command: Sequence[str], home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """The command, run to its end."""
    return subprocess.run(
        command,
        cwd=home,
        env=environment(home, **more),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def ray_workers(ancestor: int) -> list[int]:
    """The processes among the ancestor's descendants that run nodes."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        pid = int(entry.name)
        while command.startswith(b"ray::ClientAppActor") and pid > 1:
            pid = parent(pid)
            if pid == ancestor:
                found.append(int(entry.name))
                break
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("more", [[], ["--masking", "secagg", "--dropout", "0.1"]], ids=["plain", "masked"])
def test_a_killed_ray_worker_fails_the_round_and_releases_nothing(tmp_path: Path, more: list[str]) -> None:
    out, ledger = tmp_path / "out", tmp_path / "ledger"
    arguments = ["--nodes", "30", "--users", "3000", "--out", str(out), "--ledger", str(ledger), *more]
    command = subprocess.Popen(
        [*RUN, *arguments],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until = monotonic() + SECONDS
        while not (workers := ray_workers(command.pid)) and command.poll() is None and monotonic() < until:
            sleep(0.02)
        os.kill(workers[0], signal.SIGKILL)
        _, told = command.communicate(timeout=SECONDS)
    finally:
        command.kill()
    assert command.returncode == 4, told
    assert "of 30 nodes answered" in told
    assert "nothing was released. A Ray worker process ended" in told
    assert not out.exists()
    shown = ended([sys.executable, "-m", "fedhist", "ledger", "show", str(ledger)], tmp_path)
    assert "failed" in shown.stdout
    assert "sum:   epsilon 0, delta 0" in shown.stdout


def drivers(logs: Path) -> int:
    """How many programs have joined the cluster: each has a log there."""
    return len(list(logs.glob("python-core-driver-*.log")))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_foreign_cluster_is_joined_when_asked_and_only_then_if_it_sees_the_users(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    # Not below pytest's folder: Ray's sockets allow short paths only.
    temporary, folder = Path(mkdtemp(prefix="ray-")), tmp_path_factory.mktemp("runs")

    def release(name: str, *more: str, **settings: str) -> bytes:
        small = ["--quiet", "--nodes", "6", "--users", "600", "--out", str(folder / name)]
        done = ended([*RUN, *small, *more], folder, **settings)
        assert (done.returncode, done.stderr) == (0, "")
        document = json.loads((folder / name / "result.json").read_text())
        assert document["users_answered"] == {"select": 600, "release": 600}
        return (folder / name / "histogram.csv").read_bytes()

    try:
        with loopback_cluster(temporary) as cluster:
            address, logs = cluster.address, cluster.logs
            # Named in the environment, and recorded where Ray looks for it: neither counts.
            alone = release("alone", RAY_ADDRESS=address, RAY_TMPDIR=str(temporary))
            assert drivers(logs) == 0
            assert release("asked", "--ray-address", address) == alone
            assert drivers(logs) == 1
            probed = ended([sys.executable, "-c", PROBE, address, str(folder)], folder)
            assert probed.returncode == 0, probed.stderr
            other, seen = json.loads(probed.stdout)
            assert other == [["127.0.0.1", f"sees another folder {folder}"]]
            assert seen == []
            small = [
                "--users",
                "60",
                "--nodes",
                "3",
                "--out",
                str(folder / "blind"),
                "--ray-address",
                address,
            ]
            blind = ended([sys.executable, "-c", BLIND, *RUN[3:], *small], folder)
            assert blind.returncode == 2, blind.stderr
            assert "the machine 127.0.0.1 of the Ray cluster can't read the users' folder" in blind.stderr
            assert "TMPDIR" in blind.stderr
            assert not (folder / "blind").exists()
    finally:
        rmtree(temporary, ignore_errors=True)


# A worker that has another folder of that name, and one that has it.
PROBE = """
import json, sys
from fedhist.simulations.engines.quiet import quieten
quieten()
from hashlib import sha256
from pathlib import Path
import ray
from fedhist.simulations.engines.ray import init_args, machines_with_problems
ray.init(runtime_env={"env_vars": {"PYTHONPATH": ":".join(sys.path)}}, **init_args(sys.argv[1]))
folder = Path(sys.argv[2])
(folder / "marker").write_bytes(b"this one")
ours = sha256(b"this one").hexdigest()
print(json.dumps([
    machines_with_problems(folder / "marker", sha256(b"another").hexdigest()),
    machines_with_problems(folder / "marker", ours),
]))
"""

# The probe runs where the folder can't be seen: a cluster whose every task looks below another root.
BLIND = """
import sys
import fedhist.simulations.engines.ray as runtime
from fedhist.commands.cli import main
real = runtime.machines_with_problems
runtime.machines_with_problems = lambda marker, digest: real(marker.parent / "elsewhere" / marker.name, digest)
main(sys.argv[1:])
"""


class TestTheAddress:
    def test_without_one_ray_is_always_local_and_on_the_loopback_interface(self) -> None:
        assert init_args(None)["address"] == "local"
        assert [on_loopback(address) for address in (None, "127.0.0.1:6379", "10.0.0.1:6379", "auto")] == [
            *(True, True, False, False)
        ]

    @pytest.mark.parametrize(
        "address", ["auto", "127.0.0.1:6379", "ray-head.example:6379", "[::1]:6379", None]
    )
    def test_a_host_with_a_port(self, address: str | None) -> None:
        check_address(address)

    @pytest.mark.parametrize("address", ["", "local", "ray://127.0.0.1:10001", "host", "a b:1", "host:port"])
    def test_anything_else_is_refused(self, address: str) -> None:
        with refused(InvalidInput, "bad-address"):
            check_address(address)
