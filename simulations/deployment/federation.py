"""A SuperLink and SuperNodes on this machine, with TLS and registered node keys, until the block ends.

Flower's own commands do everything; the same commands, on hosts of their own, are in docs/deployment.md.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any

from fedhist import __version__
from fedhist.protocol.errors import InvalidInput, RoundFailed
from fedhist.simulations.deployment.certificates import (
    Certificates,
    NodeKey,
    make_certificates,
    make_node_key,
)
from fedhist.simulations.deployment.processes import Program, Programs, free_ports
from fedhist.simulations.engines.quiet import ENVIRONMENT

Value = bool | float | int | str

_HOST = "127.0.0.1"
_NAME = "loopback"
_START_SECONDS = 120.0
_COMMAND_SECONDS = 60.0
# A call of flwr keeps a processor busy for more than a second, which the nodes could use.
_PAUSE_SECONDS = 2.0
_REGISTER_AT_ONCE = 3
_SHOWN_LOG_LINES = 12
_PROGRAMS = ("flwr", "flower-superlink", "flower-supernode")


@dataclass
class Federation:
    """A deployment that runs.

    Args:
        folder: certificates, logs, and a Flower home for each process.
        port: where the SuperLink listens.
        certificates: its TLS.
        programs: all processes, the SuperLink first.
        database: where the SuperLink keeps nodes and runs; None for its memory.
    """

    folder: Path
    port: int
    certificates: Certificates
    programs: Programs
    database: Path | None = None
    nodes: list[Program] = field(default_factory=list)

    def submit(self, app: Path, settings: Mapping[str, Value] | None = None) -> str:
        """Hand an app to the SuperLink, with this run-config over its own; the number of the run."""
        own = ("--run-config", " ".join(toml_lines(settings))) if settings else ()
        document = self._flwr("run", str(app), _NAME, *own, "--format", "json")
        return str(document["run-id"])

    def statuses(self) -> dict[str, str]:
        """The status of every run, by number: `pending`, `starting`, `running`, or `finished:` with how."""
        document = self._flwr("list", _NAME, "--format", "json")
        return {str(run["run-id"]): str(run["status"]) for run in document["runs"]}

    def wait(self, run: str, *, seconds: float) -> None:
        """Until the run has finished. RoundFailed unless it completed, whatever `flwr run` said."""
        seen: dict[str, str] = {}

        def finished() -> bool:
            seen.update(self.statuses())
            return seen[run].startswith("finished")

        self.programs.wait_until(finished, "the end of the run", seconds=seconds, pause=_PAUSE_SECONDS)
        if seen[run] != "finished:completed":
            failed = RoundFailed(f"the Flower run ended as {seen[run]}; nothing was released. Its log:")
            failed.add_note(f"\n{self.log(run)}")
            raise failed

    def log(self, run: str) -> str:
        """The last lines of the ServerApp's log."""
        done = self._run_flwr("log", run, _NAME, "--show")
        return "\n".join(done.stdout.splitlines()[-_SHOWN_LOG_LINES:])

    def online(self) -> int:
        """The number of SuperNodes that are online."""
        document = self._flwr("supernode", "list", _NAME, "--format", "json")
        return sum(node["status"] == "online" for node in document["nodes"])

    def register(self, key: NodeKey) -> None:
        """Let a SuperNode with this key in."""
        self._flwr("supernode", "register", str(key.public), _NAME, "--format", "json")

    def start_link(self) -> None:
        """Start the SuperLink and wait until it answers under its certificate."""
        tls = self.certificates
        command = [
            *(_program("flower-superlink"), "--host", _HOST, "--port", str(self.port)),
            *("--ssl-ca-certfile", str(tls.authority), "--ssl-certfile", str(tls.certificate)),
            *("--ssl-keyfile", str(tls.key), "--enable-supernode-auth"),
            *(("--database", str(self.database)) if self.database else ()),
        ]
        self.programs.start("superlink", command, self.environment("superlink"))
        trusted = ssl.create_default_context(cafile=str(tls.authority))
        self.programs.wait_until(
            lambda: _listens(self.port, trusted), "the SuperLink to answer", seconds=_START_SECONDS
        )

    def start_node(self, name: str, key: NodeKey, port: int, config: Mapping[str, Value]) -> Program:
        """Start a SuperNode with this configuration of its own."""
        command = [
            *(_program("flower-supernode"), "--superlink", f"{_HOST}:{self.port}"),
            *("--root-certificates", str(self.certificates.authority)),
            *("--auth-supernode-private-key", str(key.private)),
            *("--host", _HOST, "--port", str(port)),
            *("--node-config", " ".join(toml_lines(config))),
        ]
        node = self.programs.start(name, command, self.environment(name))
        self.nodes.append(node)
        return node

    def environment(self, name: str) -> dict[str, str]:
        """No telemetry, a Flower home of its own, and this very fedhist."""
        home = self.folder / "homes" / name
        home.mkdir(parents=True, exist_ok=True)
        # Flower starts its helpers by name.
        places = (str(Path(_program("flwr")).parent), os.environ.get("PATH", ""))
        packages = (_fedhist_home(), os.environ.get("PYTHONPATH", ""))
        proxies = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        return {
            **os.environ,
            **ENVIRONMENT,
            **proxies,
            "FLWR_HOME": str(home),
            "PATH": os.pathsep.join(filter(None, places)),
            "PYTHONPATH": os.pathsep.join(filter(None, packages)),
        }

    def _flwr(self, *arguments: str) -> Any:
        done = self._run_flwr(*arguments)
        try:
            document = json.loads(done.stdout)
        except ValueError:
            document = {"success": False}
        if done.returncode != 0 or not document.get("success"):
            words = (done.stdout + done.stderr).strip().splitlines()[-_SHOWN_LOG_LINES:]
            failed = RoundFailed(f"'flwr {arguments[0]}' failed; nothing was released. It said:")
            failed.add_note("\n" + "\n".join(words))
            raise failed
        return document

    def _run_flwr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(  # noqa: S603 - the command is made here
                [_program("flwr"), *arguments],
                capture_output=True,
                text=True,
                check=False,
                timeout=_COMMAND_SECONDS,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                env=self.environment("user"),
            )
        except subprocess.TimeoutExpired:
            raise RoundFailed(
                f"'flwr {arguments[0]}' did not end within {_COMMAND_SECONDS:g} seconds; nothing was released"
            ) from None


@contextmanager
def open_federation(
    folder: Path,
    configs: Sequence[Mapping[str, Value]],
    *,
    database: Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[Federation]:
    """A SuperLink and a SuperNode for each configuration; all of it is stopped when the block ends, however it ends.

    Args:
        folder: an empty folder for certificates, keys, logs and Flower homes.
        configs: the `--node-config` of each SuperNode.
        database: where the SuperLink keeps nodes and runs; None for its memory.
        tell: called with each step.
    """
    for name in _PROGRAMS:
        _program(name)
    for part in ("keys", "logs"):
        (folder / part).mkdir()
    link_port, *ports = free_ports(1 + len(configs))
    programs = Programs(folder / "logs")
    federation = Federation(folder, link_port, make_certificates(folder / "keys"), programs, database)
    _write_connection(federation)
    try:
        tell(f"starting a SuperLink with TLS on {_HOST}:{link_port}")
        federation.start_link()
        tell(f"registering {len(configs)} node keys and starting the SuperNodes")
        keys = [make_node_key(folder / "keys", f"node-{number}") for number in range(len(configs))]
        with ThreadPoolExecutor(_REGISTER_AT_ONCE) as pool:
            list(pool.map(federation.register, keys))
        for number, (key, port, config) in enumerate(zip(keys, ports, configs, strict=True)):
            federation.start_node(f"node-{number}", key, port, config)
        # A call of flwr before they are up would only slow them down.
        programs.wait_until(
            lambda: all(_listens(port) for port in ports), "all SuperNodes to listen", seconds=_START_SECONDS
        )
        programs.wait_until(
            lambda: federation.online() == len(configs),
            "all SuperNodes to be online",
            seconds=_START_SECONDS,
            pause=_PAUSE_SECONDS,
        )
        yield federation
    finally:
        started = monotonic()
        programs.stop()
        tell(f"stopped all processes in {monotonic() - started:.1f} s")


def _fedhist_home() -> str:
    """The folder that holds the running fedhist, installed or in a checkout."""
    spec = find_spec("fedhist")
    assert spec is not None and spec.origin is not None  # noqa: S101 - it runs this code
    return str(Path(spec.origin).parent.parent)


def write_app(folder: Path, settings: Mapping[str, Value]) -> Path:
    """A Flower app that is nothing but a name for the installed fedhist, with this run-config."""
    folder.mkdir()
    lines = [
        *("[project]", 'name = "fedhist-loopback"', f'version = "{__version__}"', ""),
        *("[tool.flwr.app]", 'publisher = "fedhist"', ""),
        "[tool.flwr.app.components]",
        'serverapp = "fedhist.server.app:app"',
        'clientapp = "fedhist.client.app:app"',
        *("", "[tool.flwr.app.config]", *toml_lines(settings), ""),
    ]
    (folder / "pyproject.toml").write_text("\n".join(lines), encoding="utf-8")
    return folder


def toml_lines(values: Mapping[str, Value]) -> list[str]:
    """Keys and values as TOML and Flower's command line read them; JSON's forms are among those."""
    return [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]


def _write_connection(federation: Federation) -> None:
    connection = {
        "address": f"{_HOST}:{federation.port}",
        "root-certificates": str(federation.certificates.authority),
    }
    home = Path(federation.environment("user")["FLWR_HOME"])
    text = "\n".join(
        ["[superlink]", f'default = "{_NAME}"', "", f"[superlink.{_NAME}]", *toml_lines(connection), ""]
    )
    (home / "config.toml").write_text(text, encoding="utf-8")


def _listens(port: int, trusted: ssl.SSLContext | None = None) -> bool:
    """Whether something answers at this port, under a trusted certificate if there is a context."""
    try:
        with socket.create_connection((_HOST, port), timeout=5) as plain:
            if trusted is not None:
                trusted.wrap_socket(plain, server_hostname=_HOST).close()
            return True
    except OSError:
        return False


def _program(name: str) -> str:
    """Where a program of Flower is: beside this Python, or on the path."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise InvalidInput(
            f"there is no program {name}",
            allowed="an installation of Flower on the PATH",
            advice="pip install 'flwr>=1.41,<1.43' in this environment",
        )
    return found
