"""A plan's fields are declared once: options, run-config, documents and types say what the declaration says."""

from __future__ import annotations

import inspect
import re
import tomllib
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import get_args

import click
import pytest

from fedhist import Plan
from tests.support.api import (
    AGAIN_KEY,
    FIELDS,
    FOLDER_KEY,
    FOR_NODES,
    RELEASE_NAMES,
    SELECTOR_NAMES,
    SELECTORS,
    Field,
    GridSettings,
    OpenNoiseKind,
    read_settings,
)

ROOT = Path(__file__).resolve().parents[1]
RUN_CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
MASKS = {
    "masking",
    "participants",
    "corrupt_share",
    "dropout_share",
    "noise_from",
    "max_items",
    "max_item_bytes",
}
WINDOWS = {"window"}
# What a command takes in another way: sizes from the population, a range of epsilons, lists of selectors.
NOT_OPTIONS = {
    "run:run": {"users", "items", "participants"},
    "plan:plan": {
        "users",
        "items",
        "epsilon",
        "minimum_cohort",
        *WINDOWS,
        *MASKS,
    },
    "compare:compare": {"users", "items", "selector", "minimum_cohort", "participants", *WINDOWS},
}


def test_a_plan_has_the_declared_fields_and_writes_them_as_json() -> None:
    names = list(FIELDS)
    assert [field.name for field in fields(Plan) if field.init] == names
    whole = Plan(users=10, items=3, window="2026-W47")
    assert list(whole.to_json()) == ["version", *names]
    assert list(Plan(users=10, items=3).to_json()) == ["version", *names]
    assert set(re.findall(r"^        (\w+): ", Plan.__doc__ or "", re.MULTILINE)) == set(names)


@pytest.mark.parametrize("field", FIELDS.values(), ids=list(FIELDS))
def test_a_default_is_one_of_the_values_that_are_allowed(field: Field) -> None:
    assert field.required or field.plain(field.default) == field.default
    assert inspect.signature(Plan).parameters[field.name].default == (
        inspect.Parameter.empty if field.required else field.default
    )


def test_the_choices_that_others_define_are_theirs() -> None:
    assert set(re.findall(r"[\w-]+", FIELDS["release"].meaning)) >= set(get_args(OpenNoiseKind))
    assert set(re.findall(r"[\w-]+", FIELDS["selector"].meaning)) >= set(SELECTORS.with_installed())
    assert set(SELECTOR_NAMES) == set(SELECTORS.built_in)
    assert set(RELEASE_NAMES) == {"discover", *get_args(OpenNoiseKind)}


@pytest.mark.parametrize("command", NOT_OPTIONS)
def test_an_option_says_what_the_declaration_says(command: str) -> None:
    module, name = command.split(":")
    options = {
        option.name: option for option in getattr(import_module(f"fedhist.commands.{module}"), name).params
    }
    assert set(FIELDS) - NOT_OPTIONS[command] <= set(options)
    for field in (FIELDS[name] for name in FIELDS if name not in NOT_OPTIONS[command]):
        option = options[field.name]
        assert isinstance(option, click.Option)
        assert option.opts == [f"--{field.name.replace('_', '-')}"]
        assert (option.help or "").startswith(field.meaning)
        if command == "compare:compare":
            assert option.default in (field.default, (field.default,))
        else:
            # Without --domain a run's is decided by the list of items that it is given, or not.
            assert option.default == (
                None if field.name == "domain" and command.startswith("run") else field.default
            )
            assert tuple(getattr(option.type, "choices", ())) == field.choices


def test_the_run_config_lists_every_setting_once() -> None:
    """A key that is not listed could not be given at all."""
    own = [field.name for field in fields(GridSettings) if field.name != "plan"]
    listed = [name.replace("-", "_") for name in RUN_CONFIG if not name.startswith(FOR_NODES)]
    assert listed[: len(FIELDS)] == list(FIELDS)
    of_schedules = [key.replace("-", "_") for key in (FOLDER_KEY, AGAIN_KEY)]
    assert sorted(listed[len(FIELDS) :]) == sorted([*own, *of_schedules])


def test_the_run_config_of_the_checkout_leaves_all_but_users_to_the_defaults() -> None:
    settings = read_settings(RUN_CONFIG | {"users": 10, "items": 3})
    assert settings == GridSettings(plan=Plan(users=10, items=3))
