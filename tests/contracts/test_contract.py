"""How a contract fails, and that it can be imported without a test runner."""

from __future__ import annotations

import subprocess
import sys
from unittest.mock import patch

import pytest

from fedhist.testing import Contract
from tests.support.api import require

NUMBER: Contract[int] = Contract("number")


@NUMBER.check
def it_is_small(number):
    require(number < 10, f"{number} is not below 10")


@NUMBER.check
def it_divides(number):
    require(60 % number == 0, f"{number} does not divide 60")


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (11, "number: it_is_small: 11 is not below 10"),
        (7, "number: it_divides: 7 does not divide 60"),
        (0, "number: it_divides: ZeroDivisionError"),
    ],
)
def test_the_first_check_that_fails_is_named(number, message):
    NUMBER.run_all(5)
    with pytest.raises(AssertionError, match=f"^{message}"):
        NUMBER.run_all(number)


def test_checks_are_skipped_by_name_and_a_wrong_name_is_none():
    NUMBER.run_all(7, skip=["it_divides"])
    with pytest.raises(AssertionError, match=r"it_dives.*it_is_small, it_divides"):
        NUMBER.run_all(7, skip=["it_dives"])


def test_a_check_that_fails_leaves_the_registry_as_it_was():
    registry = {"name": 1}
    entry: Contract[int] = Contract("entry", lambda number: patch.dict(registry, {"name": number}))
    entry.check(lambda number: require(registry["name"] != number, "it is in the registry"))
    with pytest.raises(AssertionError, match="registry"):
        entry.run_all(2)
    assert registry == {"name": 1}


def test_neither_pytest_nor_hypothesis_is_needed(tmp_path):
    code = "import sys, fedhist.testing; print({'pytest', 'hypothesis'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.strip() == "set()"
