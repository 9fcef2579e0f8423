"""A Flower deployment on the loopback interface: a SuperLink, SuperNodes, and all of it stopped when the block ends.

Flower's own commands do everything, without TLS and keys; with both, on hosts too, they are in docs/deployment.md.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import polars as pl

from fedhist import __version__
from fedhist.protocol.errors import RoundFailed
from fedhist.server.disk import held_off
from fedhist.simulations.datasets.synthetic import block_generator
from fedhist.simulations.engines.quiet import ENVIRONMENT

Value = bool | float | int | str

ITEMS = ("bread", "milk", "apples", "rice", "cheese", "coffee", "tea", "honey")
_HOST = "127.0.0.1"
_LIMIT_SECONDS = 120.0
_POLITE_SECONDS = 10.0
# A call of flwr keeps a processor busy for more than a second, which the nodes could use.
_PAUSE_SECONDS = 2.0
_SHOWN_LOG_LINES = 12
# Flower starts its helpers by name.
_PATH = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))


@dataclass
class Deployment:
    """A deployment that runs.

    Args:
        folder: logs, and a Flower home for each process.
        port: where the SuperLink listens.
        database: where the SuperLink keeps nodes and runs; None for its memory.
        programs: the SuperLink and the SuperNodes, by name.
    """

    folder: Path
    port: int
    database: Path | None = None
    programs: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def submit(self, app: Path, settings: Mapping[str, Value] | None = None) -> str:
        """Hand an app to the SuperLink, with this run-config over its own; the number of the run."""
        own = ("--run-config", " ".join(toml_lines(settings))) if settings else ()
        return str(self._asked("run", str(app), *own)["run-id"])

    def statuses(self) -> dict[str, str]:
        """The status of every run, by number: `pending`, `starting`, `running`, or `finished:` with how."""
        return {str(run["run-id"]): str(run["status"]) for run in self._asked("list")["runs"]}

    def wait(self, run: str, *, seconds: float) -> None:
        """Until the run has finished. RoundFailed unless it completed, whatever `flwr run` said."""
        self.wait_until(
            lambda: self.statuses()[run].startswith("finished"),
            "the end of the run",
            seconds=seconds,
            pause=_PAUSE_SECONDS,
        )
        if (status := self.statuses()[run]) != "finished:completed":
            raise _failed(f"the Flower run ended as {status}; nothing was released. Its log:", self.log(run))

    def log(self, run: str) -> str:
        """The last lines of the ServerApp's log."""
        return "\n".join(self._flwr("log", run, "--show").stdout.splitlines()[-_SHOWN_LOG_LINES:])

    def online(self) -> int:
        """The number of SuperNodes that are online."""
        return sum(node["status"] == "online" for node in self._asked("supernode", "list")["nodes"])

    def start_link(self) -> None:
        """Start the SuperLink and wait until it listens."""
        database = ("--database", str(self.database)) if self.database else ()
        self._start(
            "superlink",
            ["flower-superlink", "--insecure", "--host", _HOST, "--port", str(self.port), *database],
        )

        def listens() -> bool:
            with suppress(OSError), socket.create_connection((_HOST, self.port), timeout=5):
                return True
            return False

        self.wait_until(listens, "the SuperLink to answer", seconds=_LIMIT_SECONDS)

    def start_node(self, name: str, config: Mapping[str, Value]) -> None:
        """Start a SuperNode with this configuration of its own."""
        place = ("--insecure", "--superlink", f"{_HOST}:{self.port}", "--host", _HOST)
        own = ("--port", str(free_ports(1)[0]), "--node-config", " ".join(toml_lines(config)))
        self._start(name, ["flower-supernode", *place, *own])

    def kill(self, name: str) -> None:
        """End a program with no chance to say goodbye, as a power cut would."""
        self.programs[name].kill()
        self.programs[name].wait()

    def wait_until(self, state: Callable[[], bool], what: str, *, seconds: float, pause: float = 0.1) -> None:
        """Wait for a state. RoundFailed if it does not come in time, or a program ends before it.

        Args:
            state: called until it returns True.
            what: completes "waited in vain for ...".
            seconds: the limit.
            pause: seconds between two calls.
        """
        until = monotonic() + seconds
        watched = [(name, one) for name, one in self.programs.items() if one.poll() is None]
        while not state():
            for name, program in watched:
                if program.poll() is not None:
                    raise _failed(
                        f"{name} ended with code {program.returncode} before {what}; nothing was released. "
                        "It said:",
                        Path(self.folder, "logs", f"{name}.log").read_text(
                            encoding="utf-8", errors="replace"
                        ),
                    )
            if monotonic() >= until:
                raise RoundFailed(
                    f"waited {seconds:g} seconds in vain for {what}; nothing was released", code="timed-out"
                )
            sleep(pause)

    def stop(self) -> None:
        """Stop all programs and whatever they started. A second Ctrl-C waits until then."""
        with held_off(starting=True):
            for number in (signal.SIGTERM, signal.SIGKILL):
                for pid in self._processes():
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
                until = monotonic() + _POLITE_SECONDS
                while any(self._processes()) and monotonic() < until:
                    sleep(0.1)
            for program in self.programs.values():
                program.wait()

    def _processes(self) -> Iterator[int]:
        """What runs with a Flower home of this deployment: some of it in sessions of its own, without a parent."""
        ours = f"FLWR_HOME={self.folder}/homes/".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if ours in (process / "environ").read_bytes():
                    yield int(process.name)

    def _start(self, name: str, command: Sequence[str]) -> None:
        # A session of its own: a Ctrl-C on our terminal is ours to pass on.
        with held_off(starting=True), Path(self.folder, "logs", f"{name}.log").open("wb") as log:
            self.programs[name] = subprocess.Popen(  # noqa: S603 - the command is made here, from paths and numbers
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(name),
                start_new_session=True,
            )

    def _environment(self, name: str) -> dict[str, str]:
        """No telemetry, a Flower home of its own, and this very fedhist."""
        home = self.folder / "homes" / name
        home.mkdir(parents=True, exist_ok=True)
        packages = (str(Path(sys.modules["fedhist"].__path__[0]).parent), os.environ.get("PYTHONPATH", ""))
        return {
            **os.environ,
            **ENVIRONMENT,
            **dict.fromkeys(("NO_PROXY", "no_proxy"), f"{_HOST},localhost"),
            "FLWR_HOME": str(home),
            "PATH": _PATH,
            "PYTHONPATH": os.pathsep.join(filter(None, packages)),
        }

    def _asked(self, *arguments: str) -> Any:
        done = self._flwr(*arguments, "--format", "json")
        document = json.loads(done.stdout) if done.stdout.startswith("{") else {}
        if done.returncode != 0 or not document.get("success"):
            raise _failed(
                f"'flwr {arguments[0]}' failed; nothing was released. It said:", done.stdout + done.stderr
            )
        return document

    def _flwr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = self._environment("user")
        Path(environment["FLWR_HOME"], "config.toml").write_text(
            '[superlink]\ndefault = "loopback"\n\n[superlink.loopback]\ninsecure = true\n'
            f'address = "{_HOST}:{self.port}"\n'
        )
        try:
            return subprocess.run(  # noqa: S603 - the command is made here
                ["flwr", *arguments],  # noqa: S607 - on the path that we set
                capture_output=True,
                text=True,
                check=False,
                timeout=_LIMIT_SECONDS,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                env=environment,
            )
        except subprocess.TimeoutExpired:
            raise RoundFailed(
                f"'flwr {arguments[0]}' did not end within {_LIMIT_SECONDS:g} seconds; nothing was released"
            ) from None


@contextmanager
def open_deployment(
    folder: Path,
    configs: Sequence[Mapping[str, Value]],
    *,
    database: Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[Deployment]:
    """A SuperLink and a SuperNode for each configuration; all of it is stopped when the block ends, however it ends.

    Args:
        folder: an absolute, empty folder for logs and Flower homes.
        configs: the `--node-config` of `node-0`, `node-1`, and so on.
        database: where the SuperLink keeps nodes and runs; None for its memory.
        tell: called with each step.
    """
    (folder / "logs").mkdir()
    deployment = Deployment(folder, free_ports(1)[0], database)
    try:
        tell(f"starting a SuperLink on {_HOST}:{deployment.port}")
        deployment.start_link()
        tell(f"starting {len(configs)} SuperNodes")
        for number, config in enumerate(configs):
            deployment.start_node(f"node-{number}", config)
        deployment.wait_until(
            lambda: deployment.online() == len(configs),
            "all SuperNodes to be online",
            seconds=_LIMIT_SECONDS,
            pause=_PAUSE_SECONDS,
        )
        yield deployment
    finally:
        tell("stopping all processes")
        deployment.stop()


def write_app(folder: Path, settings: Mapping[str, Value]) -> Path:
    """A Flower app that is nothing but a name for the installed fedhist, with this run-config."""
    folder.mkdir()
    lines = [
        *("[project]", 'name = "fedhist-loopback"', f'version = "{__version__}"', ""),
        *("[tool.flwr.app]", 'publisher = "fedhist"', ""),
        "[tool.flwr.app.components]",
        'serverapp = "fedhist.server.flower:app"',
        'clientapp = "fedhist.client.flower:app"',
        *("", "[tool.flwr.app.config]", *toml_lines(settings), ""),
    ]
    (folder / "pyproject.toml").write_text("\n".join(lines), encoding="utf-8")
    return folder


def write_example(
    folder: Path, *, nodes: int, users: int, masking: str = "none"
) -> tuple[dict[str, Value], list[dict[str, Value]]]:
    """Synthetic purchases of `users` people on each node: the run-config, and the nodes' configurations.

    Each node admits one run. With signed masks they still lack identities and the directory.
    """
    (folder / "items.txt").write_text("\n".join(ITEMS) + "\n", encoding="utf-8")
    configs: list[dict[str, Value]] = []
    for number in range(nodes):
        path = folder / f"node-{number}.csv"
        random = block_generator("deployment", 0, number)
        counts = random.multinomial(1 + random.geometric(0.1, users), np.arange(len(ITEMS), 0, -1) / 36)
        owners, items = counts.nonzero()
        pl.DataFrame(
            {
                "user": [f"u{number}-{owner}" for owner in owners],
                "item": np.array(ITEMS)[items],
                "count": counts[owners, items],
            }
        ).write_csv(path)
        configs.append(
            {
                "data-path": str(path),
                "items-path": str(folder / "items.txt"),
                "memory-path": str(folder / f"node-{number}.memory"),
                "max-epsilon": 1.1,
                "minimum-cohort": 2,
                "minimum-masking": masking,
            }
        )
    settings: dict[str, Value] = {
        "users": nodes * users,
        "items": len(ITEMS),
        "items-file": str(folder / "items.txt"),
        "epsilon": 1.0,
        "epsilon-select": 0.1,
        # The run goes on with half of them.
        "minimum-cohort": (nodes * users + 1) // 2,
    }
    return settings | ({"masking": masking, "participants": nodes} if masking != "none" else {}), configs


def toml_lines(values: Mapping[str, Value]) -> list[str]:
    """Keys and values as TOML and Flower's command line read them; JSON's forms are among those."""
    return [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]


def free_ports(count: int) -> list[int]:
    """Different ports of the loopback interface on which nothing listens at the moment."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server((_HOST, 0))) for _ in range(count)]
        return [int(one.getsockname()[1]) for one in listeners]


def _failed(what: str, log: str) -> RoundFailed:
    failed = RoundFailed(what, code="process-ended")
    failed.add_note("\n" + "\n".join(log.strip().splitlines()[-_SHOWN_LOG_LINES:]))
    return failed
