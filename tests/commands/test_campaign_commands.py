"""`fedhist campaign`: new, run and show, and what they say."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from fedhist import InvalidInput, Schedule
from tests.builders import ROOT, Fedhist, files_in
from tests.support.api import folder_module
from tests.support.schedules import WEEKS, visits

NEW = (
    *("campaign", "new", "autumn", "--windows", "2020-W40..2020-W43", "--time-column", "when"),
    *("--ledger", "people.ledger", "--epsilon", 4, "--delta", 1e-6),
)
RUN = ("campaign", "run", "autumn", "--data", "visits.csv")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    visits().write_csv("visits.csv")
    Path("shops.txt").write_text("bakery\ncinema\nlibrary\n")
    return tmp_path


def test_a_schedule_from_its_file_to_its_page(fedhist: Fedhist, here: Path) -> None:
    made = fedhist(*NEW, "--items-file", "shops.txt", "--data", "visits.csv")
    assert made.code == 0, made.err
    assert "as the ledger counts; added up it would be 8.1" in made.out
    assert "before the data begins" in made.out
    assert set(files_in(here / "autumn")) == {"schedule.toml", "items.txt", "index.html"}
    first = fedhist(*RUN, "--until", "2020-10-12")
    assert first.code == 0, first.err
    assert (here / "autumn" / "2020-W41").exists() and not (here / "autumn" / "2020-W42").exists()
    assert "next: 2020-W42" in first.out
    rest = fedhist("campaign", "run", "autumn", "--json").document()
    assert rest["released"] == list(WEEKS[2:])
    assert [window["status"] for window in rest["windows"]] == ["done"] * 4
    assert rest["spent"]["epsilon"] <= 4
    assert rest["windows_left"] == 0
    assert fedhist(*RUN, "--json").document()["released"] == []
    page = (here / "autumn" / "index.html").read_text()
    assert page.count('class="chart"') == 3 and 'href="2020-W40/report.html"' in page
    assert "They add up for one user" in page
    assert not re.search(r"""(?:src|href)=["']?https?:""", page)
    limit = fedhist("ledger", "show", "people.ledger", "--json").document()
    assert limit["limit"] == {"epsilon": 4.0, "delta": 1e-6}
    assert limit["runs_left"] == 0
    assert fedhist("campaign", "show", "autumn", "--json").document()["windows"] == rest["windows"]


def test_the_page_of_the_documents_shows_what_the_command_prints(fedhist: Fedhist, here: Path) -> None:
    page = (ROOT / "docs/campaigns.md").read_text(encoding="utf-8")
    shown = re.findall(r"^    ((?:total|a window|all 13): .*)$", page, re.MULTILINE)
    command = re.search(r"^fedhist (campaign new .*?)[^\\]$", page, re.MULTILINE | re.DOTALL)
    assert command is not None and len(shown) == 3
    printed = fedhist(*shlex.split(command[0].replace("\\\n", " "))[1:]).out.splitlines()
    assert {line.replace("...", str(here)) for line in shown} <= set(printed)


def test_what_can_only_be_useless_is_said_when_it_is_made(fedhist: Fedhist, here: Path) -> None:
    made = fedhist(*NEW, "--users", 50)
    assert made.code == 0
    assert "the choice of the threshold will be close to chance" in made.out
    again = fedhist(*NEW)
    assert again.code == 2 and "autumn exists already" in again.err and "--out" not in again.err
    weak = fedhist(
        *("campaign", "new", "weak", "--windows", "2020-W40", "--ledger", "other.ledger"),
        *("--epsilon", 50, "--delta", 0.1, "--users", 100),
    )
    assert "protects hardly anybody" in weak.out and "above 1/" in weak.out
    assert "only nodes of Flower" in weak.out


def test_columns_of_a_table_without_names_are_numbers(fedhist: Fedhist, here: Path) -> None:
    visits().write_csv("bare.csv", include_header=False)
    made = fedhist(
        *NEW,
        "--items-file",
        "shops.txt",
        "--no-header",
        "--user-column",
        1,
        "--item-column",
        2,
        "--time-column",
        3,
    )
    assert made.code == 0, made.err
    assert fedhist("campaign", "run", "autumn", "--data", "bare.csv", "--quiet").code == 0
    assert (here / "autumn" / "2020-W43").exists()


def test_run_refuses_what_it_can_not_run_before_it_charges(fedhist: Fedhist, here: Path) -> None:
    assert fedhist(*NEW).code == 0
    for arguments, says in (
        ((), "without times"),
        (("--data", "missing.csv"), "missing.csv"),
        (("--data", "shops.txt"), "shops.txt"),
        (("--data", "visits.csv", "--again", "2020-W40"), "is due and can't be run again"),
        (("--data", "visits.csv", "--until", "2999-01-01"), "still to come"),
        (("--data", "visits.csv", "--workers", "0"), "workers"),
    ):
        said = fedhist("campaign", "run", "autumn", *arguments)
        assert said.code == 2 and says in said.err, said.err
    ledger = fedhist("ledger", "show", "people.ledger", "--json").document()
    assert [(run["data"], run["status"], run["charges"]) for run in ledger["runs"]] == [
        ("autumn", "released", [])
    ]
    assert fedhist("campaign", "show", "nowhere").code == 2
    shown = fedhist("ledger", "show", "people.ledger").out
    assert "defined" in shown and "released" not in shown


def test_a_limit_that_others_used_up_is_said_before_and_refused_then(fedhist: Fedhist, here: Path) -> None:
    assert fedhist(*NEW, "--items-file", "shops.txt").code == 0
    other = (
        *("run", "--data", "visits.csv", "--items-file", "shops.txt", "--no-evaluate"),
        *("--epsilon", 2, "--ledger", "people.ledger", "--quiet", "--out", "other"),
    )
    assert fedhist(*other).code == 0
    assert "of the 4 windows to come fit" in fedhist("campaign", "show", "autumn").out
    assert fedhist(*RUN).code == 3
    shown = fedhist("campaign", "show", "autumn", "--json").document()
    assert {one["status"] for one in shown["windows"]} == {"done", "due"}


def test_a_window_that_is_lost_is_reported_and_run_again_by_name(
    fedhist: Fedhist, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fedhist(*NEW, "--items-file", "shops.txt", "--spare", 1).code == 0

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(folder_module, "write_text", full)
        said = fedhist(*RUN)
    assert said.code == 1 and "what was charged stays charged" in said.err
    assert "2020-W40 is lost" in fedhist("campaign", "show", "autumn").out
    rest = fedhist(*RUN)
    assert rest.code == 0 and "2020-W40 is lost" in rest.err
    assert not (here / "autumn" / "2020-W40").exists()
    assert fedhist(*RUN, "--again", "2020-W40", "--json").document()["released"] == ["2020-W40"]
    assert "is lost" not in (here / "autumn" / "index.html").read_text()


def test_the_page_holds_no_markup_of_a_name(fedhist: Fedhist, here: Path) -> None:
    hostile = "<script>alert(1)</script>"
    table = visits()
    table.with_columns(item=table["item"].replace("cinema", hostile)).write_csv("visits.csv")
    fedhist(*NEW[:-4], "--epsilon", 60, "--delta", 1e-3)
    assert fedhist(*RUN).code == 0
    page = (here / "autumn" / "index.html").read_text()
    assert "alert(1)" in page and hostile not in page


def test_a_total_that_the_limit_has_no_room_for_is_noted(fedhist: Fedhist, here: Path) -> None:
    for limit in (3, 4):
        fedhist("ledger", "limit", "people.ledger", "--epsilon", limit, "--delta", 1e-6, "--replace")
        made = fedhist(*NEW[:2], f"of-{limit}", *NEW[3:], "--items-file", "shops.txt")
        assert made.code == 0
        assert ("less than the total" in made.out) is (limit == 3)


def test_a_folder_that_the_disk_refuses_is_no_schedule(
    fedhist: Fedhist, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder_module, "write_text", full)
    monkeypatch.setattr("fedhist.server.schedule.write_text", full)
    said = fedhist(*NEW)
    assert said.code == 1 and "can't be written" in said.err
    assert not (here / "autumn").exists() and not (here / "people.ledger").exists()


def test_a_hidden_number_of_users_is_given_with_the_schedule(fedhist: Fedhist, here: Path) -> None:
    hidden = (*NEW, "--items-file", "shops.txt", "--neighbours", "add-or-remove-one")
    assert fedhist(*hidden).code == 0
    refused = fedhist(*RUN)
    assert refused.code == 2 and "without a number of users" in refused.err
    said = Path("autumn", "schedule.toml").read_text()
    Path("autumn", "schedule.toml").write_text(said + "users = 77\n")
    done = fedhist(*RUN, "--until", "2020-10-12")
    assert done.code == 0, done.err
    for window in WEEKS[:2]:
        document = json.loads(Path("autumn", window, "result.json").read_text())
        assert (document["users_answered"], document["users_public"]) == (
            {"select": 77, "release": 77},
            False,
        )


def test_a_refusal_names_the_options_of_the_command(fedhist: Fedhist, here: Path) -> None:
    assert fedhist(*NEW).code == 0
    Path("autumn").rename("moved")
    assert "say so once with --moved" in fedhist("campaign", "show", "moved").err
    with pytest.raises(InvalidInput, match="say so once with moved"):
        Schedule("moved")
