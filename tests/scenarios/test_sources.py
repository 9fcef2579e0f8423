"""Where users come from: what a function returns, a partition in simulation, the node's own source in deployment."""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from flwr.app import Context, RecordDict
from flwr.clientapp import ClientApp
from local_grid import RUN_ID, LocalGrid, context_of, dashed, data_of, message_of, outcome, run_server_app
from scipy.sparse import coo_array

from fedhist import Columns, InvalidInput, Plan, RoundFailed, SparsePopulation
from fedhist.client import Policy, is_virtual, mount, partition_loader
from fedhist.server import run_on_grid
from tests.asking import first_request, release_at
from tests.support.api import Envelope, Threshold, items_digest
from tests.support.api import app_module as client_app
from tests.support.refusals import refused

PAGES = ["home", "search", "cart"]
VISITS = [(f"c{number % 30}", PAGES[number * number % 3], 1 + number % 2) for number in range(120)]
NAMES = Columns("customer", "page", "n")
PLAN = Plan(users=60, items=3, max_threshold=500, epsilon=50.0, epsilon_select=50.0, minimum_cohort=10)
QUERY = "SELECT customer, page, n FROM visits"
COLUMNS = {"user_column": "customer", "item_column": "page", "count_column": "n"}


def release(labels: list[str] = PAGES) -> Envelope:
    """Above every user's norm, so that an answer is the exact sum."""
    plan = PLAN if len(labels) == 3 else Plan(users=60, items=len(labels), max_threshold=500)
    at_most = Threshold(steps=plan.step_range[1], bits=plan.grid_bits)
    return Envelope(run="one", request=release_at(plan, at_most), items_digest=items_digest(labels))


def csv_file(path: Path, separator: str = ",") -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=separator).writerows([NAMES.names, *VISITS])
    return path


def frame() -> pl.DataFrame:
    return pl.DataFrame(VISITS, schema=NAMES.names, orient="row")


def matrix() -> Any:
    rows = {name: row for row, name in enumerate(dict.fromkeys(name for name, _, _ in VISITS))}
    places = [rows[name] for name, _, _ in VISITS], [PAGES.index(page) for _, page, _ in VISITS]
    return coo_array(([n for _, _, n in VISITS], places), shape=(30, 3))


def answer_of(app: ClientApp, envelope: Envelope | None = None, **node_config: Any) -> bytes:
    reply = app(message_of(envelope or release()), context_of(**node_config))
    assert outcome(reply) == ("answer", "")
    data = data_of(reply)
    assert data is not None
    return data


@pytest.fixture
def expected() -> bytes:
    return answer_of(mount(ClientApp(), lambda context: SparsePopulation.from_scipy(matrix(), labels=PAGES)))


@pytest.mark.parametrize(
    "data",
    [
        frame,
        lambda: frame().lazy(),
        lambda: frame().to_pandas(),
        lambda: frame().to_arrow(),
        lambda: pa.RecordBatchReader.from_batches(frame().to_arrow().schema, frame().to_arrow().to_batches()),
        lambda: frame().sample(fraction=1.0, shuffle=True, seed=1),
    ],
    ids=["polars", "lazy", "pandas", "pyarrow", "stream", "shuffled"],
)
def test_mount_takes_a_data_frame(data: Callable[[], Any], expected: bytes) -> None:
    assert answer_of(mount(ClientApp(), lambda context: data(), columns=NAMES, items=PAGES)) == expected


def test_mount_takes_a_matrix_and_a_path(expected: bytes, tmp_path: Path) -> None:
    path = csv_file(tmp_path / "d.csv")
    assert answer_of(mount(ClientApp(), lambda context: matrix(), items=PAGES)) == expected
    assert answer_of(mount(ClientApp(), lambda context: path, columns=NAMES, items=PAGES)) == expected
    assert answer_of(mount(ClientApp(), lambda context: str(path), columns=NAMES, items=PAGES)) == expected


def test_the_most_frequent_items_of_a_nodes_own_data_are_refused_over_an_open_domain() -> None:
    """One user can change which these are, and so what others add to the sum."""
    people = SparsePopulation.from_scipy(matrix(), labels=PAGES)
    asked = Envelope(run="one", request=first_request(Plan(users=30, domain="open", delta=1e-6)))
    assert answer_of(mount(ClientApp(), lambda context: people), asked)
    reply = mount(ClientApp(), lambda context: people.keep_top_items(2))(message_of(asked), context_of())
    assert outcome(reply) == ("refused", "other-items")


def test_one_users_odd_row_of_a_frame_is_left_out(caplog: pytest.LogCaptureFixture, expected: bytes) -> None:
    odd = pl.DataFrame(
        [("c1", "cart", -5), ("c1", None, 1), (None, "cart", 1)], schema=frame().schema, orient="row"
    )
    app = mount(ClientApp(), lambda context: pl.concat([frame(), odd]), columns=NAMES, items=PAGES)
    assert answer_of(app) == expected
    assert "3 rows of the node's data were left out" in caplog.text


class TestTheNodesOwnSource:
    @pytest.fixture
    def items(self, tmp_path: Path) -> str:
        (tmp_path / "items.txt").write_text("\n".join(PAGES))
        return str(tmp_path / "items.txt")

    @pytest.fixture
    def address(self, tmp_path: Path) -> str:
        connection = sqlite3.connect(tmp_path / "visits.db")
        with connection:
            connection.execute("CREATE TABLE visits (customer TEXT, page TEXT, n INTEGER)")
            connection.executemany("INSERT INTO visits VALUES (?, ?, ?)", VISITS[::-1])
        connection.close()
        return f"sqlite:///{tmp_path}/visits.db"

    def test_a_file_with_columns_of_its_own(self, tmp_path: Path, items: str, expected: bytes) -> None:
        path = str(csv_file(tmp_path / "d.csv", ";"))
        config = {"data_path": path, "separator": ";", "items_path": items} | COLUMNS
        assert answer_of(client_app.app, **config) == expected

    @pytest.mark.parametrize("listed", [PAGES[:2], PAGES[::-1], [*PAGES, "help"]])
    def test_a_list_of_the_node_is_that_of_the_app_or_nothing_is_sent(
        self, tmp_path: Path, items: str, expected: bytes, listed: list[str], caplog: pytest.LogCaptureFixture
    ) -> None:
        config = {"data_path": str(csv_file(tmp_path / "d.csv"))} | COLUMNS
        app = mount(ClientApp(), client_app.node_population, items=PAGES)
        assert answer_of(app, items_path=items, **config) == answer_of(app, **config) == expected
        (tmp_path / "other.txt").write_text("\n".join(listed))
        reply = app(message_of(release()), context_of(items_path=str(tmp_path / "other.txt"), **config))
        assert data_of(reply) is None
        assert "the app has another or another order" in caplog.text
        assert "leave items-path or bins out" in caplog.text

    def test_a_database_with_rows_in_another_order(self, address: str, items: str, expected: bytes) -> None:
        config = {"db_url": address, "query": QUERY, "items_path": items} | COLUMNS
        assert answer_of(client_app.app, **config) == expected

    def test_no_word_of_a_database_leaves_the_node(
        self, address: str, items: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        for url, query in (
            (address, "SELECT hunter2 FROM visits"),
            (address + "hunter2", QUERY),
            ("postgresql://me:hunter2@127.0.0.1:1/hunter2", QUERY),
            ("nosuch://me:hunter2@127.0.0.1/x", QUERY),
        ):
            config = {"db_url": url, "query": query, "items_path": items} | COLUMNS
            reply = client_app.app(message_of(release()), context_of(**config))
            assert outcome(reply)[0] == "failed"
            assert "hunter2" not in repr(reply)
        assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"] * 4
        assert "hunter2" not in caplog.text.replace(address + "hunter2", "").replace("visits.dbhunter2", "")

    def test_the_server_has_no_say(self, address: str, items: str, expected: bytes) -> None:
        """A run-config is the server's."""
        config = dashed({"db_url": address, "query": QUERY, "items_path": items} | COLUMNS)
        theirs = {"query": "SELECT 1", "data-path": "/etc/passwd", "user-column": "n", "bins": "0,1"}
        context = Context(RUN_ID, 5, config, RecordDict(), theirs)
        assert data_of(client_app.app(message_of(release()), context)) == expected


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Makes data sets of flwr-datasets from a file here. Nothing is asked of a network."""
    folder = tmp_path_factory.mktemp("hub")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
            patch.setenv(name, "1")
        patch.setenv("HF_HOME", str(folder))
        patch.setenv("FLWR_TELEMETRY_ENABLED", "0")
        from flwr_datasets import FederatedDataset
        from flwr_datasets.partitioner import GroupedNaturalIdPartitioner

        path = str(folder / "visits.parquet")
        frame().write_parquet(path)

        def build(users_a_node: int) -> Any:
            by_user = GroupedNaturalIdPartitioner("customer", users_a_node)
            return FederatedDataset(
                dataset="parquet",
                data_files=path,
                partitioners={"train": by_user},
                cache_dir=str(folder / "cache"),
            )

        yield build


@pytest.mark.slow  # importing flwr-datasets takes seconds
class TestPartitions:
    def mounted(self, dataset: Any) -> ClientApp:
        return mount(
            ClientApp(),
            partition_loader(dataset),
            columns=NAMES,
            items=PAGES,
            policy=Policy(max_epsilon=200.0),
            simulated=is_virtual,
        )

    def test_a_simulation_over_partitions_is_a_release_of_all_rows(self, cut: Callable[..., Any]) -> None:
        grid = LocalGrid.of([self.mounted(cut(10))] * 3)
        for number, node in enumerate(grid.nodes.values()):
            node.context = context_of(node=100 + number, partition_id=number, num_partitions=3)
        found = run_on_grid(grid, PLAN, labels=PAGES)
        truth = frame().group_by("page").agg(pl.col("n").sum()).rows()
        for page, total in truth:
            near = found.histogram[PAGES.index(page)]
            assert abs(near - total) < 10 * found.standard_error

    def test_the_same_app_on_a_real_node_reads_what_is_its_own(
        self, cut: Callable[..., Any], tmp_path: Path, expected: bytes
    ) -> None:
        (tmp_path / "items.txt").write_text("\n".join(PAGES))
        config = {
            "data_path": str(csv_file(tmp_path / "d.csv")),
            "items_path": str(tmp_path / "items.txt"),
            **COLUMNS,
        }
        app = mount(ClientApp(), partition_loader(cut(10)), simulated=is_virtual)
        assert answer_of(app, **config) == expected
        # Also under a number that somebody gave it.
        assert answer_of(app, partition_id=0, num_partitions=3, **config) == expected

    def test_more_partitions_than_nodes_are_refused(
        self, cut: Callable[..., Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        with refused(InvalidInput, "other-number-of-partitions", "3", "2"):
            partition_loader(cut(10))(context_of(partition_id=0, num_partitions=2))

    def test_a_real_node_without_data_gets_no_partition(self, cut: Callable[..., Any]) -> None:
        own = partition_loader(cut(10))(context_of())
        with refused(InvalidInput, "no-data"):
            own.population(None)


class TestBinsOnBothSides:
    """The server names the same public edges, and needs no file of the bins' names."""

    @pytest.fixture
    def grid(self, tmp_path: Path) -> LocalGrid:
        grid = LocalGrid.of([client_app.app] * 3)
        for number, node in grid.nodes.items():
            path = tmp_path / f"{number}.csv"
            path.write_text("who,price\n" + "".join(f"{number}-{user},{user % 25}.5\n" for user in range(20)))
            node.context = context_of(
                node=number, data_path=str(path), user_column="who", item_column="price", bins="0:20:10"
            )
        return grid

    def config(self, out: Path, **changes: Any) -> dict[str, Any]:
        plan = {
            "users": 60,
            "epsilon": 50.0,
            "epsilon_select": 50.0,
            "minimum_cohort": 10,
            "max_threshold": 5,
        }
        return plan | {"bins": "0,10,20", "out": str(out), "minimum_nodes": 3} | changes

    def test_the_same_bins_are_released_by_name(self, grid: LocalGrid, tmp_path: Path) -> None:
        run_server_app(grid, self.config(tmp_path / "result"))
        released = pl.read_csv(tmp_path / "result" / "histogram.csv")
        assert released["item"].to_list() == ["[0, 10)", "[10, 20)"]
        assert np.abs(released["value"].to_numpy() - 30).max() < 10

    def test_other_bins_are_refused(self, grid: LocalGrid, tmp_path: Path) -> None:
        with pytest.raises(RoundFailed):
            run_server_app(grid, self.config(tmp_path / "result", bins="0,5,20"))
