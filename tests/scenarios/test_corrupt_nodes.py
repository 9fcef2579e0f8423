"""Signed masks with a corrupt node, and over a real SuperLink with a server that lies to nodes about each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from flwr.clientapp import ClientApp
from local_grid import LocalGrid, Node

from fedhist import Plan, RoundFailed
from fedhist.client import mount
from fedhist.server import run_on_grid
from tests.builders import population_of
from tests.support.api import (
    Checked,
    Confirmed,
    RoundReport,
    numbered_identities,
    open_deployment,
    participant_number,
    write_app,
    write_example,
)
from tests.support.api import masked_device_module as masked_device
from tests.support.api import restore_state as restore
from tests.support.api import wire_module as wire
from tests.support.refusals import refused

LIMIT_SECONDS = 300.0
ROUND_SECONDS = 90.0
NODES = 6
OPEN_SSH = (Encoding.OpenSSH, PublicFormat.OpenSSH)

IDENTITIES = numbered_identities([bytes([number]) * 32 for number in range(NODES)])

LYING = '''
"""The server's app. It shows every second node a list of survivors without the last, and believes all signatures."""

from fedhist.protocol.masking import server as masking_server
from fedhist.protocol.masking import wire
from fedhist.server import flower

honest = masking_server.CollectingInputs.close


def close(stage):
    following, messages = honest(stage)
    everybody = sorted(stage._heard)

    def shown():
        for number, (device, _) in enumerate(messages):
            survivors = everybody[:-1] if number % 2 == 0 and device != everybody[-1] else everybody
            yield device, wire.message(wire.Kind.SURVIVORS, stage.terms, wire.id_list(survivors))

    return following, shown()


masking_server.CollectingInputs.close = close
masking_server.verify = lambda *arguments: True
app = flower.app
'''


@pytest.mark.slow
@pytest.mark.timeout(800)
def test_a_lying_server_gets_no_sum_over_a_superlink(tmp_path: Path) -> None:
    settings, configs = write_example(tmp_path, nodes=NODES, users=200, masking="secagg-signed")
    directory = tmp_path / "directory.pub"
    keys = [Ed25519PrivateKey.generate() for _ in configs]
    directory.write_bytes(b"\n".join(key.public_key().public_bytes(*OPEN_SSH) for key in keys))
    for number, (config, key) in enumerate(zip(configs, keys, strict=True)):
        private = tmp_path / f"identity-{number}"
        private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
        private.chmod(0o600)
        config |= {"identity-path": str(private), "directory-path": str(directory)}
    settings |= {"directory": str(directory), "out": str(tmp_path / "result")}
    app = write_app(tmp_path / "app", settings | {"timeout": ROUND_SECONDS, "corrupt-share": 0.17})
    (app / "lying_server.py").write_text(LYING)
    project = app / "pyproject.toml"
    project.write_text(project.read_text().replace("fedhist.server.flower:app", "lying_server:app"))
    with open_deployment(tmp_path, configs) as deployment:
        run = deployment.submit(app)
        with refused(RoundFailed, "process-ended"):
            deployment.wait(run, seconds=LIMIT_SECONDS)
    # They masked, and signed, and then saw signatures of another list.
    logs = [(tmp_path / "logs" / f"node-{number}.log").read_text() for number in range(NODES)]
    assert [log.count("unmasking: refused, unsafe") for log in logs] == [1] * NODES
    assert not (tmp_path / "result").exists()


def test_a_corrupt_node_is_left_out_and_named_and_spoils_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says in the first round that nobody's box opens, and signs nonsense in the second."""
    honest = masked_device.proceed
    corrupt, sessions = participant_number(IDENTITIES[0].public), list[bytes]()

    def proceed(session: Any, message: bytes, **named: Any) -> Any:
        state, answer = honest(session, message, **named)
        after = restore(state)
        if after.terms.session not in sessions:
            sessions.append(after.terms.session)
        if after.me == corrupt and isinstance(after, Checked) and len(sessions) == 1:
            answer = wire.encode_ids(wire.Kind.COMPLAINTS, sorted(after.shares), after.terms)
        if after.me == corrupt and isinstance(after, Confirmed) and len(sessions) == 2:
            answer = wire.message(wire.Kind.CONFIRMATION, after.terms, bytes(64))
        return state, answer

    monkeypatch.setattr(masked_device, "proceed", proceed)
    rows = [[3, 1, 4]] * 5
    nodes = {
        100 + number: Node(
            mount(
                ClientApp(),
                lambda context: population_of(rows),
                identity=lambda context: IDENTITIES[context.node_id - 100],
                simulated=lambda context: True,
            ),
            100 + number,
        )
        for number in range(NODES)
    }
    plan = Plan(
        users=30, items=3, max_threshold=60, masking="secagg-signed", participants=NODES, corrupt_share=0.17,
        dropout_share=0.17,
    )  # fmt: skip
    reports: list[RoundReport] = []
    run_on_grid(LocalGrid(nodes), plan, directory=IDENTITIES[0].directory, on_report=reports.append)
    first, second = reports
    assert (dict(first.left_out), first.users) == ({"complaints": (100,)}, 25)
    # Its input is in the sum, and the others' signatures are enough.
    assert (dict(second.left_out), second.users, dict(second.faults)) == ({}, 30, {"malformed": 1})
