"""Reports and figures: what is on the page, what is not, and what happens to names that want to do harm."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fuzz_mutations import document_text, mutated, mutated_document

from fedhist import FedhistError
from tests.builders import Fedhist, page_in, write_records
from tests.support.api import UnexpectedMessage, number, read_run, run_charts, visible, write_page
from tests.support.api import draw_figure as draw

SMALL = ("--users", 300, "--items", 20)
FEW = (*SMALL, "--max-threshold", 60)
EVIL = [
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<!--",
    '"><img src=x onerror=alert(3)>',
    "\u202eright to left",
    "bell\u0007 and nul-like \u0001",
    "line\u2028separator",
    "&amp;&lt;",
    "$title ${body}",
    "שלום",
    "日本",
]
NOT_PRIVATE = "not private, simulation only"


@pytest.fixture
def folder_of(fedhist: Fedhist, tmp_path: Path) -> Callable[..., Path]:
    """The result folder r of a run with these flags."""

    def run(*flags: object) -> Path:
        outcome = fedhist("run", *flags, "--seed", 1, "--out", "r")
        assert outcome.code == 0, outcome.err
        return tmp_path / "r"

    return run


@pytest.fixture
def folder(folder_of: Callable[..., Path]) -> Path:
    return folder_of(*SMALL)


class TestTheFile:
    def test_it_is_one_small_file_that_fetches_nothing(self, folder: Path) -> None:
        page = page_in(folder)
        assert len(page.text) < 2_000_000
        fetching = ("src", "href", "srcset", "data", "action", "poster", "xlink:href")
        addresses = [known[name] for _, known in page.elements() for name in fetching if name in known]
        assert addresses == ["data:,"]
        assert not re.search(r"https?:|@import|url\((?!#)|fetch\(|XMLHttpRequest|WebSocket", page.text)
        policies = [known.get("content") for tag, known in page.elements() if known.get("http-equiv")]
        assert len(policies) == 1
        assert str(policies[0]).startswith("default-src 'none'")

    def test_many_items_do_not_make_it_large(self, folder_of: Callable[..., Path]) -> None:
        folder = folder_of("--users", 200, "--items", 30_000)
        assert (folder / "report.html").stat().st_size < 300_000
        assert (folder / "simulation.json").stat().st_size < 100_000

    @pytest.mark.parametrize(
        "mode",
        [
            (*FEW, "--mechanism", "laplace"),
            (*FEW, "--domain", "open", "--epsilon", 20),
            (*FEW, "--domain", "open", "--release", "truncated-laplace"),
            (*FEW, "--debias", "poisson"),
            (*FEW, "--selector", "fixed", "--threshold", 20),
            (*FEW, "--selector", "dpsgd"),
            (*FEW, "--no-evaluate"),
            ("--users", 1, "--items", 1),
            ("--users", 3, "--items", 2, "--epsilon", 0.001),
            ("--users", 40, "--items", 3, "--min-threshold", 7, "--max-threshold", 7),
            ("--users", 40, "--items", 3, "--domain", "open"),
            ("--users", 40, "--items", 1, "--debias", "poisson"),
            ("--users", 200, "--items", 4, "--epsilon", 1e6, "--epsilon-select", 1e6),
        ],
        ids=lambda mode: " ".join(map(str, mode)),
    )
    def test_every_mode_has_one_with_charts_and_it_can_be_written_again(
        self, fedhist: Fedhist, folder_of: Callable[..., Path], mode: tuple[Any, ...]
    ) -> None:
        page = page_in(folder_of(*mode))
        assert fedhist("report", "r", "--out", "again.html").code == 0
        assert Path("again.html").read_text(encoding="utf-8") == page.text
        assert "nan" not in page.text.split("<script", 1)[0].lower().replace("financ", "")
        for name in {"released", "curve", "scores"} & set(page.charts):
            assert fedhist("figure", "r", name, "--out", f"{name}.svg").code == 0


class TestWhatIsOnIt:
    def test_the_numbers_are_those_of_the_files(self, folder: Path) -> None:
        page, document = page_in(folder), json.loads((folder / "result.json").read_text())
        charts = page.charts
        names = {"released", "curve", "scores", "chances", "users", "budget", "bytes", "seconds"}
        assert set(charts) == names
        run = read_run(folder)
        assert charts["released"].heads == ["item", "estimate", "true count"]
        shown = charts["released"].column("estimate")
        for label, value, least in zip(run.labels, run.estimates, run.at_least, strict=True):
            assert shown[str(label)] == number(float(value))
            assert number(float(least)) in page.text
        drawn = run_charts(run)
        assert len(charts["curve"].rows) == len(drawn["curve"].lines[0].xs)
        chosen = next(point for point in drawn["curve"].points if point.name == "chosen")
        assert chosen.xs == [document["threshold"]]
        assert chosen.ys[0] == pytest.approx(document["relative_loss"], rel=0.5)
        spent = [float(cell) for cell in charts["budget"].column("epsilon").values()]
        assert sum(spent[:-2]) == pytest.approx(document["total"]["epsilon"]) == spent[-2]
        assert sum(drawn["users"].lines[0].ys) + run.exact["users"]["empty"] == 300

    def test_the_true_counts_are_the_true_ones(self, folder: Path) -> None:
        from fedhist import HeavyTailedPopulation, true_histogram

        truth = true_histogram(HeavyTailedPopulation(users=300, items=20, seed=1)).tolist()
        told = page_in(folder).charts["released"].column("true count")
        assert {int(label): count for label, count in told.items()} == dict(enumerate(map(number, truth)))

    def test_what_comes_from_the_truth_is_marked(self, folder: Path) -> None:
        page = page_in(folder)
        for name in ("curve", "scores", "users", "released"):
            start = page.text.index(f'id="chart-{name}"')
            assert NOT_PRIVATE in page.text[start : page.text.index("</figcaption>", start)]
            assert page.charts[name].marked

    def test_without_the_truth_nothing_of_it_is_there(
        self, fedhist: Fedhist, folder_of: Callable[..., Path]
    ) -> None:
        folder = folder_of(*SMALL, "--no-evaluate", "--trace")
        page = page_in(folder)
        assert NOT_PRIVATE not in page.words()
        assert "Times are withheld" in page.words()
        assert set(page.charts) == {"released", "budget", "bytes"}
        assert page.charts["released"].heads == ["item", "estimate"]
        assert not (folder / "simulation.json").exists()
        trace = (folder / "trace.jsonl").read_text().splitlines()
        assert not {"scores", "view"} & {json.loads(line).get("event") for line in trace}
        refused = fedhist("figure", "r", "curve", "--out", "f.svg")
        assert refused.code == 2
        assert "nothing to show" in refused.err
        assert not Path("f.svg").exists()

    def test_drop_outs_are_in_the_timeline(self, fedhist: Fedhist, folder: Path) -> None:
        document = json.loads((folder / "result.json").read_text())
        faults = {"no-answer": 1, "refused": 1}
        document["rounds"]["select"] |= {"answered": 11, "nodes": 13, "faults": faults}
        (folder / "result.json").write_text(json.dumps(document))
        assert fedhist("report", "r", "--out", "again.html").code == 0
        page = page_in(".", "again.html")
        assert "11 of 13 participants are in the sum, 300 users; 2 dropped out." in page.words()
        assert "1 no-answer, 1 refused" in page.words()


class TestHarmlessNames:
    def test_names_are_text_on_the_page_and_in_a_figure(self, fedhist: Fedhist, tmp_path: Path) -> None:
        rows = [[f"u{user}", item, 5 + place] for user in range(40) for place, item in enumerate(EVIL)]
        write_records(tmp_path / "evil.csv", rows)
        outcome = fedhist("run", "--data", "evil.csv", "--seed", 1, "--epsilon", 50, "--out", "<b>r")
        assert outcome.code == 0, outcome.err
        page = page_in(tmp_path / "<b>r")
        assert [tag for tag, _ in page.elements()].count("script") == 1
        assert not {"img", "b0", "iframe"} & {tag for tag, _ in page.elements()}
        assert not [known for _, known in page.elements() if any(name.startswith("on") for name in known)]
        for name in EVIL:
            assert visible(name) in page.words()
        assert not re.search(
            "[\u0000-\u0008\u000b-\u001f\u007f\u202a-\u202e\u2066-\u2069\u2028\u2029]", page.text
        )
        assert set(page.charts["released"].column("estimate")) == {visible(name) for name in EVIL}
        assert fedhist("figure", "<b>r", "released", "--out", "f.svg").code == 0
        drawn = Path("f.svg").read_text()
        assert "&lt;script&gt;" in drawn
        assert "<script" not in drawn


class TestBadInput:
    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("result.json", "{"),
            ("result.json", "[]"),
            ("result.json", "{}"),
            ("result.json", '{"plan": {"users": 3}}'),
            ("histogram.csv", "item,value\n1,2\n"),
            ("histogram.csv", "item,value,standard_error,estimate,at_least\n1,x,2,1,0\n"),
            ("histogram.csv", "item,value,standard_error,estimate,at_least\n1,inf,2,1,0\n"),
            ("simulation.json", "{}"),
            ("simulation.json", '{"simulation": 2}'),
        ],
    )
    def test_a_damaged_file_is_named(self, fedhist: Fedhist, folder: Path, name: str, content: str) -> None:
        (folder / name).write_text(content)
        outcome = fedhist("report", "r", "--out", "new.html")
        assert outcome.code == 2
        assert name in outcome.err
        assert outcome.err.count("\n") == 1
        assert not Path("new.html").exists()

    def test_an_existing_file_is_kept_unless_forced(self, fedhist: Fedhist, folder: Path) -> None:
        (folder / "report.html").write_text("mine")
        outcome = fedhist("report", "r")
        assert outcome.code == 2
        assert "exists already" in outcome.err
        assert (folder / "report.html").read_text() == "mine"
        assert fedhist("report", "r", "--force").code == 0
        assert (folder / "report.html").read_text() != "mine"


class TestFigures:
    def test_every_chart_can_be_drawn_and_says_if_it_is_from_the_truth(
        self, fedhist: Fedhist, folder: Path
    ) -> None:
        for name, chart in page_in(folder).charts.items():
            for kind, magic in (("svg", b"<?xml"), ("png", b"\x89PNG")):
                outcome = fedhist("figure", "r", name, "--out", f"{name}.{kind}")
                assert outcome.code == 0, outcome.err
                assert Path(f"{name}.{kind}").read_bytes().startswith(magic)
            assert (NOT_PRIVATE in Path(f"{name}.svg").read_text()) == chart.marked


class TestTamperedFolders:
    """Each ends in a page or in a sentence: 140 of 444 such changes ended in an error of Python."""

    def shown(self, folder: Path, name: str, data: bytes, random: Random) -> bool:
        """Whether there are a page and a chart; else there is an error of ours."""
        (folder / name).write_bytes(data)
        try:
            write_page(folder, folder / "page.html", force=True)
            draw(folder, random.choice(["released", "users", "budget"]))
        except FedhistError as error:
            assert not isinstance(error, UnexpectedMessage)
            return False
        return True

    @pytest.mark.parametrize("name", ["result.json", "simulation.json"])
    def test_values_that_a_run_would_not_write(self, folder: Path, name: str) -> None:
        whole, random = (folder / name).read_bytes(), Random(name)
        assert self.shown(folder, name, whole, random)
        document, shown = json.loads(whole), 0
        for _ in range(50):
            changed = document_text(mutated_document(document, random), random)
            shown += self.shown(folder, name, changed.encode("utf-8", "replace"), random)
        assert 2 < shown < 45

    @pytest.mark.parametrize("name", ["histogram.csv", "trace.jsonl"])
    def test_bytes_that_were_changed(self, folder_of: Callable[..., Path], name: str) -> None:
        folder = folder_of(*SMALL, "--trace")
        whole, random = (folder / name).read_bytes(), Random(name)
        for _ in range(40):
            self.shown(folder, name, mutated([whole], random), random)
