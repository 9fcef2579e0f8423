"""Names come back as written unless the user asks for normalisation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import Fedhist, rows_of, write_records

COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"
ROWS = [("a", COMPOSED), ("b", DECOMPOSED), ("c", "CAF\u00c9"), ("d", "tea"), ("d", "Tea")]


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ("--domain closed", {item for _, item in ROWS}),
        ("--domain closed --normalise nfc", {COMPOSED, "CAF\u00c9", "tea", "Tea"}),
        ("--domain closed --normalise casefold", {COMPOSED, "tea"}),
        ("--normalise casefold --top-items 1", {COMPOSED}),
        # A public list is normalised alike.
        ("--normalise casefold --items-file items.txt", {COMPOSED, "tea", "mate"}),
    ],
)
def test_spellings_become_one_before_items_are_chosen(fedhist: Fedhist, flags: str, names: set[str]) -> None:
    data = write_records(Path("d.csv"), ROWS, "user", "item")
    Path("items.txt").write_text(f"TEA\n{DECOMPOSED}\nmate\n", encoding="utf-8")
    told = fedhist("run", "--data", data, "--epsilon", 1000, "--evaluate", "--out", "out", *flags.split())
    assert told.code == 0, told.err
    assert {row["item"] for row in rows_of(Path("out/histogram.csv"))} == names
