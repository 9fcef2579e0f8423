"""Fixtures for all tests; the builders behind them are in `tests.builders`."""

from __future__ import annotations

import gc
import signal
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from hypothesis import settings

from fedhist import Histograms
from tests.builders import Fedhist, Outcome, parts_of_a_sum
from tests.support.api import Integers, histograms_of
from tests.support.api import cli_module as cli

# What is imported stays, so that nothing is gained by looking for garbage in it: not now, and not later.
gc.disable()

# A shell's background job ignores Ctrl-C, and so would every process that it starts: `nohup pytest &`.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    """The baselines come in through entry points, which an installation of an older tree does not have."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    for group, declared in project["entry-points"].items():
        if missing := set(declared) - entry_points(group=group).names:
            raise pytest.UsageError(
                f"fedhist was installed before pyproject.toml had {', '.join(sorted(missing))}: run "
                "'.venv/bin/pip install --no-deps --no-build-isolation -e .' again"
            )


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that may take long come first, so that no core waits for one of them at the end."""

    def seconds_allowed(item: pytest.Item) -> float:
        limit = item.get_closest_marker("timeout")
        return float(limit.args[0]) if limit else 0.0

    items.sort(key=seconds_allowed, reverse=True)


# A busy machine is no failure: no test has a limit of milliseconds.
settings.register_profile("fedhist", deadline=None)
settings.load_profile("fedhist")


@pytest.fixture(scope="session")
def make_histograms() -> Callable[..., Histograms]:
    return histograms_of


@pytest.fixture(scope="session")
def by_user() -> Callable[..., Integers]:
    return parts_of_a_sum


@pytest.fixture
def fedhist(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fedhist:
    """The command, run in this process and in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = cli._run([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return call


@pytest.fixture
def no_plugins() -> Iterator[None]:
    """A test that begins and ends without methods from outside."""
    from tests.support.api import plugins_module as plugins

    plugins.restore([])
    yield
    plugins.restore([])
    plugins._points.cache_clear()
    plugins._BROKEN.clear()
