"""Methods from outside on Flower: a node that has the same version answers, any other refuses before it is charged."""

from __future__ import annotations

from pathlib import Path
from traceback import format_exception

import numpy as np
import pytest
from flwr.clientapp import ClientApp
from local_grid import LocalGrid, Reports, context_of, message_of, outcome, run_server_app

import fedhist
from fedhist import FedhistError, RoundFailed
from fedhist.client import mount
from fedhist.server import run_on_grid
from tests.support.api import (
    CentralNoise,
    Envelope,
    InvalidPlan,
    Round,
    items_digest,
    recall,
    registered,
    select_request,
)
from tests.support.api import client_app as node_app
from tests.support.api import restore_plugins as restore
from tests.support.refusals import refused

SAMPLES = Path(__file__).parents[1] / "extending" / "samples"


pytestmark = pytest.mark.usefixtures("no_plugins")


def plan_of(population, **settings):
    return fedhist.Plan(users=population.users, items=population.domain_size, **settings)


def test_nodes_with_the_same_version_give_the_release_of_a_simulation(lab):
    fedhist.load_plugin(SAMPLES / "mine.py")
    fedhist.load_plugin(SAMPLES / "holders.py")
    whole = lab.population()
    plan = plan_of(whole, selector="mine", release="holders")
    release = run_on_grid(lab.grid(whole, seed=4), plan, source=fedhist.SeededSource(4))
    assert np.array_equal(release.histogram, fedhist.simulate(whole, plan, seed=4).release.histogram)
    assert [charge.round for charge in release.charges] == ["select", "release"]


@pytest.mark.parametrize("there", ["nothing", "another version"])
def test_a_node_that_lacks_it_or_has_another_version_refuses_and_is_not_charged(lab, tmp_path, there):
    """The server asks; then this process is the node, with what the node has."""
    path = tmp_path / "mine.py"
    path.write_text((SAMPLES / "mine.py").read_text())
    fedhist.load_plugin(path)
    whole = lab.population()
    plan = plan_of(whole, selector="mine")
    message = message_of(Envelope(run="r", request=select_request(plan)))
    restore([])
    if there == "another version":
        path.write_text(path.read_text().replace('version = "1.0"', 'version = "2.0"'))
        fedhist.load_plugin(path)
    context = context_of()
    assert outcome(lab.app(whole)(message, context)) == ("refused", "other-plugin")
    assert recall(context).spent.epsilon == 0
    # Plans of built-in methods are answered as ever.
    plain = message_of(Envelope(run="p", request=select_request(plan_of(whole))))
    assert outcome(lab.app(whole)(plain, context))[0] == "answer"


def test_a_round_in_which_all_refuse_fails_and_says_why(lab, tmp_path):
    whole = lab.population()
    fedhist.load_plugin(SAMPLES / "mine.py")
    plan, plugins = plan_of(whole, selector="mine"), registered()

    def forgetting(context):
        restore([])

    grid = LocalGrid.of([mount(ClientApp(), lambda context: whole, plugins=forgetting)])
    reports = Reports()
    with pytest.raises(RoundFailed):
        run_on_grid(grid, plan, on_report=reports)
    assert reports.faults(Round.SELECT) == {"refused": 1}
    restore(plugins)


def test_a_node_loads_what_its_own_configuration_names(lab, tmp_path):
    data = tmp_path / "visits.csv"
    data.write_text("user,item\n" + "\n".join(f"u{n},{'ab'[n % 2]}" for n in range(30)))
    items = tmp_path / "items.txt"
    items.write_text("a\nb\n")
    fedhist.load_plugin(SAMPLES / "mine.py")
    plan = fedhist.Plan(users=30, items=2, selector="mine", epsilon_select=0.2)
    asked = Envelope(run="r", request=select_request(plan), items_digest=items_digest(["a", "b"]))
    memory = tmp_path / "memory.db"
    files = {"data_path": str(data), "items_path": str(items), "memory_path": str(memory)}
    message = message_of(asked)
    restore([])
    assert outcome(node_app(message, context_of(**files))) == ("refused", "other-plugin")
    given = files | {"plugin": str(SAMPLES / "mine.py")}
    assert outcome(node_app(message, context_of(**given)))[0] == "answer"
    broken = files | {"plugin": str(tmp_path / "missing.py")}
    restore([])
    assert outcome(node_app(message, context_of(**broken))) == ("failed", "bad-file")


def test_the_server_app_loads_what_its_run_config_names(lab, tmp_path):
    whole = lab.population()
    config = {
        "users": whole.users,
        "items": whole.domain_size,
        "selector": "mine",
        "out": str(tmp_path / "out"),
    }
    with refused(InvalidPlan, "unknown-selector", "mine"):
        run_server_app(lab.grid(whole), config)
    run_server_app(lab.grid(whole), config | {"plugin": str(SAMPLES / "mine.py")})
    assert "selector mine@1.0" in (tmp_path / "out" / "plan.json").read_text()


def test_a_method_that_forgets_its_charge_during_the_run_releases_nothing(lab):
    class Forgets(CentralNoise):
        name = "forgets"

        def charges(self, plan, threshold):
            return super().charges(plan, threshold) if threshold is None else ()

    fedhist.register(Forgets)
    whole = lab.population()
    with refused(InvalidPlan, "charges-not-declared"):
        run_on_grid(lab.grid(whole), plan_of(whole, release="forgets"))
    assert not fedhist.simulate(whole, plan_of(whole, release="forgets")).release.private


def test_what_a_method_says_of_the_sum_it_failed_on_is_not_in_the_servers_log(lab):
    class Talks(CentralNoise):
        name = "talks"

        def build(self, plan, selection, reading, *, ledger, source):
            raise InvalidPlan(f"secret {reading.values[0]}", allowed="nothing")

    fedhist.register(Talks)
    whole = lab.population()
    with refused(FedhistError, "plugin-failed", "(InvalidPlan)") as caught:
        run_on_grid(lab.grid(whole), plan_of(whole, release="talks"))
    assert "InvalidPlan: secret" not in "".join(format_exception(caught.value))


def test_a_virtual_node_takes_the_run_s_and_a_real_one_does_not(tmp_path):
    """The server chooses the run-config; a virtual node has no data to protect from it."""
    from fedhist.client_app import plugins

    run = {"plugin": str(SAMPLES / "mine.py")}
    real = context_of(data_path="visits.csv", partition_id=0, num_partitions=1)
    real.run_config = run
    plugins(real)
    assert registered() == ()
    virtual = context_of(partition_id=0, num_partitions=1)
    virtual.run_config = run
    plugins(virtual)
    assert [plugin.name for plugin in registered()] == ["mine"]
