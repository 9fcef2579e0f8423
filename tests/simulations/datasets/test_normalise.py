"""Names come back as written unless the user asks for normalisation."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner

from fedhist.commands.run_options import run
from fedhist.protocol.errors import InvalidInput

COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"
ROWS = [("a", COMPOSED), ("b", DECOMPOSED), ("c", "CAF\u00c9"), ("d", "tea"), ("d", "Tea")]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "d.csv"
    path.write_text("user,item\n" + "".join(f"{user},{item}\n" for user, item in ROWS), encoding="utf-8")
    return path


def released(data: Path, *flags: str) -> set[str]:
    out = data.with_name("out")
    arguments = ["--data", str(data), "--epsilon", "1000", "--seed", "1", "--out", str(out), *flags]
    CliRunner().invoke(run, arguments, catch_exceptions=False, standalone_mode=False)
    with (out / "histogram.csv").open(encoding="utf-8", newline="") as file:
        return {row["item"] for row in csv.DictReader(file)}


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ("", {item for _, item in ROWS}),
        ("--normalise nfc", {COMPOSED, "CAF\u00c9", "tea", "Tea"}),
        ("--normalise casefold", {COMPOSED, "tea"}),
        ("--normalise casefold --top-items 1", {COMPOSED}),
    ],
)
def test_spellings_become_one_before_items_are_chosen(data: Path, flags: str, names: set[str]) -> None:
    assert released(data, *flags.split()) == names


def test_the_public_list_is_normalised_alike(data: Path) -> None:
    items = data.with_name("items.txt")
    items.write_text(f"TEA\n{DECOMPOSED}\nmate\n", encoding="utf-8")
    flags = ["--normalise", "casefold", "--items-file", str(items)]
    assert released(data, *flags) == {COMPOSED, "tea", "mate"}


def test_it_needs_names() -> None:
    with pytest.raises(InvalidInput, match="--normalise needs a data file"):
        CliRunner().invoke(run, ["--normalise", "nfc"], catch_exceptions=False, standalone_mode=False)
