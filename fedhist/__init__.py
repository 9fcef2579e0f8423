"""User-level private histograms from data that stays on devices, with a privately chosen contribution bound.

    >>> import fedhist
    >>> result = fedhist.histogram(table, items=["tea", "coffee"], epsilon=1.0)  # doctest: +SKIP
    >>> result.to_frame(), result.threshold, result.tight  # doctest: +SKIP

Names load when they are first used, so that importing fedhist costs next to nothing.
"""

from __future__ import annotations

from os import path

# Not from typing, and no pathlib: they take longer than all the rest, and Ctrl-C meanwhile ends in a traceback.
TYPE_CHECKING = False

_here = path.dirname(path.realpath(__file__))  # noqa: PTH120 - as above
if not path.isdir(path.join(_here, "protocol")):  # noqa: PTH112, PTH118 - as above
    # A plain checkout or an unpacked Flower bundle: the sub-packages lie beside this folder, not inside it.
    __path__.append(path.dirname(_here))  # noqa: PTH120 - as above

if TYPE_CHECKING:
    from fedhist.auditing import audit
    from fedhist.client.files.columns import Columns
    from fedhist.client.files.read import read_frame, read_population
    from fedhist.client.populations import SparsePopulation
    from fedhist.extending import load_plugin, register
    from fedhist.protocol.errors import BudgetExceeded, FedhistError, InvalidInput, RoundFailed
    from fedhist.protocol.histograms import Histograms, Population
    from fedhist.protocol.plan import Plan
    from fedhist.protocol.privacy.ledger import Charge, Cost, Ledger, Limit, Spending
    from fedhist.protocol.privacy.neighbours import Neighbours
    from fedhist.protocol.privacy.randomness import SeededSource, SystemSource
    from fedhist.server.advice import plan_warnings
    from fedhist.server.coordinator import Transport, run_rounds
    from fedhist.server.ledger.file import BudgetFile
    from fedhist.server.releases.contract import Release
    from fedhist.server.totals import plan_for_total
    from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation, PoissonPopulation
    from fedhist.simulations.evaluate import Diagnostics
    from fedhist.simulations.simulation import Result, simulate, true_histogram
    from fedhist.simulations.workbench.compare import compare
    from fedhist.simulations.workbench.histogram import histogram
    from fedhist.simulations.workbench.predict import predict
    from fedhist.simulations.workbench.reporting import figure, report
    from fedhist.simulations.workbench.schedule import Schedule
    from fedhist.simulations.workbench.session import Session

__version__ = "0.1.0"

_HOMES = {
    "auditing": ("audit",),
    "extending": ("load_plugin", "register"),
    "protocol.errors": ("BudgetExceeded", "FedhistError", "InvalidInput", "RoundFailed"),
    "protocol.histograms": ("Histograms", "Population"),
    "protocol.plan.plan": ("Plan",),
    "protocol.privacy.ledger": ("Charge", "Cost", "Ledger", "Limit", "Spending"),
    "protocol.privacy.neighbours": ("Neighbours",),
    "protocol.privacy.randomness": ("SeededSource", "SystemSource"),
    "server.advice": ("plan_warnings",),
    "server.ledger.file": ("BudgetFile",),
    "server.coordinator": ("Transport", "run_rounds"),
    "server.releases.contract": ("Release",),
    "server.totals": ("plan_for_total",),
    "client.files.columns": ("Columns",),
    "client.files.read": ("read_frame", "read_population"),
    "client.populations": ("SparsePopulation",),
    "simulations.datasets.synthetic": ("HeavyTailedPopulation", "PoissonPopulation"),
    "simulations.evaluate": ("Diagnostics",),
    "simulations.simulation": ("Result", "simulate", "true_histogram"),
    "simulations.workbench.compare": ("compare",),
    "simulations.workbench.histogram": ("histogram",),
    "simulations.workbench.predict": ("predict",),
    "simulations.workbench.reporting": ("figure", "report"),
    "simulations.workbench.schedule": ("Schedule",),
    "simulations.workbench.session": ("Session",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BudgetExceeded",
    "BudgetFile",
    "Charge",
    "Columns",
    "Cost",
    "Diagnostics",
    "FedhistError",
    "HeavyTailedPopulation",
    "Histograms",
    "InvalidInput",
    "Ledger",
    "Limit",
    "Neighbours",
    "Plan",
    "PoissonPopulation",
    "Population",
    "Release",
    "Result",
    "RoundFailed",
    "Schedule",
    "SeededSource",
    "Session",
    "SparsePopulation",
    "Spending",
    "SystemSource",
    "Transport",
    "audit",
    "compare",
    "figure",
    "histogram",
    "load_plugin",
    "plan_for_total",
    "plan_warnings",
    "predict",
    "read_frame",
    "read_population",
    "register",
    "report",
    "run_rounds",
    "simulate",
    "true_histogram",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fedhist' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"fedhist.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
