"""Synthetic populations by name: `synthetic:zipf?users=100000&items=1000`.

A new one is a class in this folder and one entry in DATASETS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.histograms import Population
from fedhist.simulations.datasets import DEFAULT_ITEMS, DEFAULT_USERS
from fedhist.simulations.datasets.paper_sets import PaperPopulation, RatesPopulation, ZipfPopulation
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation, PoissonPopulation

PREFIX = "synthetic:"
DEFAULT_NAME = "heavy-tailed"

_SIZE = {"users": DEFAULT_USERS, "items": DEFAULT_ITEMS}
# The size that reproduces the paper's table, and the size that its text states.
_TABLE_SIZE = {"users": 50_000, "items": 100}
_TEXT_SIZE = {"users": 500_000, "items": 100}


@dataclass(frozen=True)
class Dataset:
    """One entry of the registry.

    Args:
        make: makes the population from its parameters and `seed`, all by name.
        line: a description in one line.
        defaults: the parameters that a user may set, with their default values. An int takes whole numbers only.
    """

    make: Callable[..., Population]
    line: str
    defaults: Mapping[str, int | float]


DATASETS = {
    DEFAULT_NAME: Dataset(
        HeavyTailedPopulation, "few items each, now and then somebody enormous", _SIZE | {"exponent": 1.0}
    ),
    "zipf": Dataset(ZipfPopulation, "heavy-tailed users over named items", _SIZE | {"exponent": 1.0}),
    "poisson": Dataset(PoissonPopulation, "users alike, Poisson counts", _SIZE | {"mean": 100.0}),
    "rates": Dataset(
        RatesPopulation,
        "Poisson counts of one item, rates from a Dirichlet distribution",
        {"users": 1_000_000, "alpha": 1.0, "mean": 1.0},
    ),
    "paper-iid": Dataset(PoissonPopulation, "the paper's iid users, in the size of its table", _TABLE_SIZE),
    "paper-non-iid": Dataset(
        PaperPopulation,
        "the paper's non-iid users, rates from Dir(1/2) as in its table",
        _TABLE_SIZE | {"rate_shape": 0.5},
    ),
    "paper-iid-text": Dataset(
        PoissonPopulation, "the paper's iid users, in the size of its text", _TEXT_SIZE
    ),
    "paper-non-iid-text": Dataset(
        PaperPopulation,
        "the paper's non-iid users, rates from Dir(2) as in its text",
        _TEXT_SIZE | {"rate_shape": 2.0},
    ),
}


def is_synthetic(text: str) -> bool:
    """True for the name of a synthetic population, False for a file."""
    return text.startswith(PREFIX)


def dataset_name(text: str) -> str:
    """The name in `synthetic:NAME?...`; an unknown one is refused."""
    name = text.removeprefix(PREFIX).partition("?")[0]
    if name not in DATASETS:
        raise InvalidInput(
            f"unknown synthetic population {name!r}",
            allowed=", ".join(DATASETS),
            advice="see fedhist data list",
        )
    return name


def make_population(text: str, *, seed: int, **sizes: int | None) -> Population:
    """The population of `synthetic:NAME?key=value&key=value`.

    Args:
        text: the name and its parameters.
        seed: the seed of the users.
        sizes: parameters given by options such as --users; None for an option that was left out.
    """
    name = dataset_name(text)
    dataset, values = DATASETS[name], _parameters(name, text.partition("?")[2])
    for key, size in sizes.items():
        if size is not None:
            _check_key(name, key)
            if key in values:
                raise InvalidInput(
                    f"{key} is given twice", allowed="once", advice=f"leave out --{key}", code="given-twice"
                )
            values[key] = size
    return dataset.make(seed=seed, **{**dataset.defaults, **values})


def _parameters(name: str, query: str) -> dict[str, int | float]:
    values: dict[str, int | float] = {}
    for pair in query.split("&") if query else ():
        key, equals, text = pair.partition("=")
        _check_key(name, key)
        if key in values or not equals:
            problem = f"{key} is given twice" if equals else f"{key} has no value"
            raise InvalidInput(problem, allowed=f"{PREFIX}{name}?key=value&key=value, each key once")
        kind = type(DATASETS[name].defaults[key])
        try:
            values[key] = kind(text)
        except ValueError:
            allowed = "a whole number" if kind is int else "a number"
            raise InvalidInput(f"{key} is {text!r}", allowed=allowed) from None
    return values


def _check_key(name: str, key: str) -> None:
    if key not in DATASETS[name].defaults:
        raise InvalidInput(
            f"the synthetic population {name} has no parameter {key!r}",
            allowed=", ".join(DATASETS[name].defaults),
            advice="the seed is --seed" if key == "seed" else "see fedhist data list",
            code="unknown-parameter",
        )
