"""The processor time of one message on a node, beside an empty ClientApp's, and the seconds of whole rounds.

    python benchmarks/message_cost.py                  # no network: a fresh process for every message
    python benchmarks/message_cost.py --deployment     # a SuperLink and three SuperNodes on the loopback interface
    python benchmarks/message_cost.py --code FOLDER    # another checkout's bundle, such as an older one

A deployed node starts a process for every message: it loads Flower, loads the app, answers and ends. Without a network
the process imports what Flower's own `flwr-clientapp` imports, loads the app from the unpacked bundle and answers; what
the server asks comes from real runs. In a deployment the processes are Flower's own, and each leaves its processor time
in a file before it ends, so without what Python then clears away; messages have numbers there, in the order in which
they came. The empty app and ours take turns, and the least of each counts: other work on the machine only adds.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl

from fedhist.simulations.engines.quiet import ENVIRONMENT, quieten

quieten()  # before Flower is imported

from flwr.app import Context, Message, RecordDict  # noqa: E402
from flwr.serverapp import Grid  # noqa: E402

from fedhist.server.flower import app as server_app  # noqa: E402
from fedhist.simulations.deployment import Deployment, Value, open_deployment, write_example  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
TARGET = 1.25
NODES = 3
USERS = 200
EMPTY = "an empty ClientApp"
CASES = ("closed", "open", "masked")
RUN_ID = 7
QUIET_SECONDS = 1.5

EMPTY_APP = {
    "pyproject.toml": """
[project]
name = "empty"
version = "1.0.0"

[tool.flwr.app]
publisher = "nobody"

[tool.flwr.app.components]
serverapp = "empty.server:app"
clientapp = "empty.client:app"

[tool.flwr.app.config]
""",
    "empty/__init__.py": "",
    "empty/client.py": """
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query("nothing")
def nothing(message, context):
    return Message(RecordDict(), reply_to=message)
""",
    "empty/server.py": f"""
from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    for _ in range(2):
        messages = [Message(RecordDict(), node, "query.nothing") for node in grid.get_node_ids()]
        assert len(list(grid.send_and_receive(messages))) == {NODES}
""",
}

ONE_MESSAGE = """
import pickle, sys
from importlib import import_module

import_module(sys.argv[1])
module, name = sys.argv[2].split(":")
with open(sys.argv[3], "rb") as file:
    message, context = pickle.load(file)
reply = getattr(import_module(module), name)(message, context)
with open(sys.argv[4], "wb") as file:
    pickle.dump((reply, context), file)
"""

# Runs in every Python process of the deployment, and acts at the end of those that Flower starts for an app.
LAST_WORDS = """
import atexit, json, os, resource, sys, time

started = time.time()


def tell():
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    if name in ("flwr-clientapp", "flwr-serverapp"):
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        cpu = sum(one.ru_utime + one.ru_stime for one in used)
        home = os.path.basename(os.environ.get("FLWR_HOME", ""))
        with open(os.path.join(os.environ["MESSAGE_COST"], f"{os.getpid()}.json"), "w") as file:
            json.dump({"name": name, "home": home, "started": started, "cpu": cpu}, file)


atexit.register(tell)
"""


@dataclass
class Costs:
    """The processor seconds of all messages, by what they ask."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def show(self) -> None:
        """The least of each, and as a ratio to the empty app's."""
        base = min(self.seconds[EMPTY])
        print(f"{'message':<46}{'processes':>10}{'CPU s':>8}{'ratio':>8}   (target {TARGET:g})")
        for kind, all_of_it in self.seconds.items():
            least = min(all_of_it)
            print(f"{kind:<46}{len(all_of_it):>10}{least:>8.2f}{least / base:>8.2f}")


@dataclass(frozen=True)
class Case:
    """A run: how the table calls it, and its run-config."""

    name: str
    settings: Mapping[str, Value]


def cases(shared: Mapping[str, Value], only: Collection[str]) -> list[Case]:
    """The runs that are measured: all, or those with these names."""
    closed = ("items", "items-file", "epsilon-select")
    opened = {name: value for name, value in shared.items() if name not in closed}
    found = [
        Case("closed", shared),
        Case("open", {**opened, "domain": "open", "epsilon": 8.0}),
        Case("masked", {**shared, "masking": "secagg", "participants": NODES}),
    ]
    return [case for case in found if case.name in only]


def prepare(folder: Path) -> tuple[list[dict[str, Value]], dict[str, Value]]:
    """The nodes' configurations, one of them with a Parquet file, and the run-config that all runs share."""
    settings, configs = write_example(folder, nodes=NODES, users=USERS)
    configs = [config | {"max-epsilon": 1e6} for config in configs]
    parquet = folder / "node-1.parquet"
    pl.read_csv(folder / "node-1.csv").write_parquet(parquet)
    configs[1]["data-path"] = str(parquet)
    return configs, settings | {"timeout": 100.0}


def kind_of(case: Case, kind: str, data: Value) -> str:
    """How the table calls a message."""
    # All nodes of a masked round do the same but in the one stage that reads the file.
    return (
        f"{case.name}: {kind}"
        if case.name == "masked"
        else f"{case.name}, {Path(str(data)).suffix[1:]}: {kind}"
    )


def unpack(code: Path, folder: Path) -> Path:
    """The bundle that `flwr run` makes of this checkout, unpacked as on a node."""
    environment = os.environ | ENVIRONMENT | {"FLWR_HOME": str(folder / "home")}
    flwr = str(Path(sys.executable).with_name("flwr"))
    subprocess.run(
        [flwr, "build", "--app", str(code)], check=True, capture_output=True, cwd=folder, env=environment
    )
    (bundle,) = folder.glob("*.fab")
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(folder / "bundle")
    return folder / "bundle"


def write_empty_app(folder: Path) -> Path:
    for name, text in EMPTY_APP.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@dataclass
class Processes:
    """Answers messages, each in a process of its own that does what Flower's does except for the network."""

    folder: Path
    imports: str = field(
        default_factory=lambda: next(iter(entry_points(name="flwr-clientapp"))).value.split(":")[0]
    )

    def answer(
        self, code: Path, app: str, message: Message, context: Context
    ) -> tuple[Message, Context, float]:
        """The reply, the node's context after it, and the processor seconds."""
        asked, replied = self.folder / "asked", self.folder / "replied"
        asked.write_bytes(pickle.dumps((message, context)))
        environment = {**os.environ, "PYTHONPATH": str(code)}
        command = [sys.executable, "-c", ONE_MESSAGE, self.imports, app, str(asked), str(replied)]
        process = subprocess.Popen(command, cwd=self.folder, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"a process failed with code {process.returncode}")
        reply, after = pickle.loads(replied.read_bytes())  # noqa: S301 - our own process wrote it
        return reply, after, used.ru_utime + used.ru_stime


@dataclass
class ProcessGrid(Grid):
    """Flower's Grid over nodes whose every message starts a process."""

    processes: Processes
    code: Path
    empty: Path
    configs: list[dict[str, Value]]
    case: Case
    costs: Costs
    states: dict[int, RecordDict] = field(default_factory=dict)
    came: list[Message] = field(default_factory=list)

    def set_run(self, run: Any) -> None:
        """Not needed here."""
        raise NotImplementedError

    @property
    def run(self) -> Any:
        """Not needed here."""
        raise NotImplementedError

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        """Not needed here."""
        raise NotImplementedError

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Not needed here."""
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        """The nodes, by number."""
        return range(100, 100 + len(self.configs))

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Answer each message at once, after one for the empty app."""
        asked = list(messages)
        self.costs.seconds[EMPTY].append(self._empty())
        for message in asked:
            message.metadata.__dict__["_message_id"] = uuid4().hex  # as Flower's own grids do
            node = message.metadata.dst_node_id
            config = self.configs[node - 100]
            context = Context(RUN_ID, node, config, self.states.get(node, RecordDict()), {})
            reply, after, used = self.processes.answer(self.code, "fedhist.client_app:app", message, context)
            self.states[node] = after.state
            self.came.append(reply)
            kind = message.metadata.message_type.removeprefix("query.")
            round_ = message.metadata.group_id
            words = kind if kind == round_ else f"{round_}, {kind}"
            self.costs.seconds[kind_of(self.case, words, config["data-path"])].append(used)
        return [message.metadata.message_id for message in asked]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies so far."""
        came, self.came = self.came, []
        return came

    def _empty(self) -> float:
        message = Message(RecordDict(), 100, "query.nothing")
        message.metadata.__dict__["_message_id"] = uuid4().hex
        context = Context(RUN_ID, 100, {}, RecordDict(), {})
        return self.processes.answer(self.empty, "empty.client:app", message, context)[2]


def without_network(folder: Path, code: Path, only: Collection[str], *, repeats: int) -> None:
    """All kinds of messages, each in a process of its own, and the table."""
    from flwr.supercore.task_identity import TaskIdentity

    # A ServerApp's process knows which task it is, and Flower's Message asks for it.
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = RUN_ID, 1, 1
    configs, shared = prepare(folder)
    bundle, empty = unpack(code, folder), write_empty_app(folder / "empty-app")
    processes, costs = Processes(folder), Costs()
    for _ in range(repeats):
        for case in cases(shared, only):
            # A Parquet file and two CSV files mask together; without masks one of each is enough.
            some = configs if "masking" in case.settings else configs[:2]
            grid = ProcessGrid(processes, bundle, empty, some, case, costs)
            server_app(
                grid, Context(RUN_ID, 1, {}, RecordDict(), {**case.settings, "minimum-nodes": len(some)})
            )
    costs.show()


def in_deployment(folder: Path, code: Path, only: Collection[str], *, repeats: int) -> None:
    """All kinds of messages in a deployment, and the table; the seconds of its rounds."""
    configs, shared = prepare(folder)
    hook, told = folder / "hook", folder / "told"
    hook.mkdir()
    told.mkdir()
    (hook / "sitecustomize.py").write_text(LAST_WORDS, encoding="utf-8")
    os.environ["MESSAGE_COST"] = str(told)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(hook), os.environ.get("PYTHONPATH", ""))))
    empty, chosen = write_empty_app(folder / "empty-app"), cases(shared, only)
    costs, servers = Costs(), Costs()
    rounds: dict[str, list[float]] = defaultdict(list)
    with open_deployment(folder, configs, tell=lambda text: print(text, file=sys.stderr)) as deployment:
        for _ in range(repeats):
            for case in (Case(EMPTY, {}), *chosen):
                own = case.name == EMPTY
                settings = {} if own else {**case.settings, "minimum-nodes": NODES}
                words = run_one(deployment, empty if own else code, settings)
                found = collect(told)
                for name, seconds in re.findall(r"round (\w+): .* users, ([\d.]+) s", words):
                    rounds[f"{case.name}, {name}"].append(float(seconds))
                for place, config in enumerate(configs):
                    mine = [one for one in found if one["home"] == f"node-{place}"]
                    for number, one in enumerate(mine, start=1):
                        kind = kind_of(case, f"message {number}", config["data-path"])
                        costs.seconds[EMPTY if own else kind].append(one["cpu"])
                servers.seconds[case.name] += [one["cpu"] for one in found if one["name"] == "flwr-serverapp"]
    costs.show()
    print(f"\n{'ServerApp of a whole run':<46}{'processes':>10}{'CPU s':>8}{'ratio':>8}")
    for name, all_of_it in servers.seconds.items():
        ratio = min(all_of_it) / min(servers.seconds[EMPTY])
        print(f"{name:<46}{len(all_of_it):>10}{min(all_of_it):>8.2f}{ratio:>8.2f}")
    print(f"\n{f'round over {NODES} nodes':<46}{'rounds':>10}{'s':>8}")
    for name, all_of_it in rounds.items():
        print(f"{name:<46}{len(all_of_it):>10}{min(all_of_it):>8.1f}")


def run_one(deployment: Deployment, app: Path, settings: Mapping[str, Value]) -> str:
    """Run an app to its end; the last lines of its log."""
    run = deployment.submit(app, settings)
    deployment.wait(run, seconds=300)
    return deployment.log(run)


def collect(folder: Path) -> list[dict[str, Any]]:
    """What the processes of a run have left, in the order in which they started, once all have ended."""
    files: list[Path] = []
    until = time.monotonic() + 60
    while time.monotonic() < until:
        time.sleep(QUIET_SECONDS)
        before, files = files, list(folder.glob("*.json"))
        # One process of the server, and on every node as many.
        if len(before) == len(files) and len(files) % NODES == 1:
            break
    found = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    for file in files:
        file.unlink()
    return sorted(found, key=lambda one: float(one["started"]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--deployment", action="store_true", help="Flower's own processes, on the loopback interface"
    )
    parser.add_argument("--code", type=Path, default=ROOT, help="the checkout whose bundle answers")
    parser.add_argument("--only", nargs="+", choices=CASES, default=CASES, help="the runs to measure")
    parser.add_argument(
        "--repeats", type=int, default=3, help="2 or more: the first run compiles the modules"
    )
    arguments = parser.parse_args()
    # A node keeps the modules' bytecode.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    measure = in_deployment if arguments.deployment else without_network
    with tempfile.TemporaryDirectory(prefix="fedhist-cost-", ignore_cleanup_errors=True) as name:
        measure(Path(name).resolve(), arguments.code.resolve(), arguments.only, repeats=arguments.repeats)


if __name__ == "__main__":
    main()
