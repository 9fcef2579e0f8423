"""Attacks on what is installed, each with the number of its tries and of its successes.

A module of this folder defines its attacks so, and `all_attacks` finds them:

    @attack("a node is asked again, with another plan in the same run")
    def another_plan(quick: bool) -> tuple[int, int]:
        return tries, successes

The text is the row's name in docs/privacy.md, so it holds no number that depends on `quick`. A try that could not be
made is no try, and a success is one that the attacker could use: an answer that nobody charged, a page that runs a
script. Whoever adds an attack also breaks the product once in tests/scenarios/test_attacks.py, so that it succeeds.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Attack:
    """One row of the table.

    Args:
        name: the attack in words.
        mount: makes the attack; takes whether to be quick, and returns the tries and the attacker's successes.
        slow: whether even the quick one takes more than a few seconds, or processes of its own.
    """

    name: str
    mount: Callable[[bool], tuple[int, int]]
    slow: bool = False


_attacks: dict[str, Attack] = {}


def attack(
    name: str, *, slow: bool = False
) -> Callable[[Callable[[bool], tuple[int, int]]], Callable[[bool], tuple[int, int]]]:
    """Add the function as an attack of this name."""

    def add(mount: Callable[[bool], tuple[int, int]]) -> Callable[[bool], tuple[int, int]]:
        _attacks[name] = Attack(name, mount, slow)
        return mount

    return add


def all_attacks() -> Iterator[Attack]:
    """The attacks of all modules of this folder, by module."""
    for module in sorted(found.name for found in pkgutil.iter_modules(__path__)):
        importlib.import_module(f"{__name__}.{module}")
    yield from _attacks.values()
