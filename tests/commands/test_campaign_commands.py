"""`fedhist campaign`: new, run and show, and what they say."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.builders import ROOT, Fedhist, files_in
from tests.campaigns import WEEKS, visits
from tests.support.api import definition_module, result_folder_module

NEW = (
    *("campaign", "new", "autumn", "--windows", "2020-W40..2020-W43", "--time-column", "when"),
    *("--ledger", "people.ledger", "--total-epsilon", 4, "--total-delta", 1e-6),
)
RUN = ("campaign", "run", "autumn", "--data", "visits.csv")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    visits().write_csv("visits.csv")
    Path("shops.txt").write_text("bakery\ncinema\nlibrary\n")
    return tmp_path


def test_a_campaign_from_its_definition_to_its_page(fedhist: Fedhist, here: Path) -> None:
    made = fedhist(*NEW, "--items-file", "shops.txt")
    assert made.code == 0, made.err
    assert "4 windows, 2020-W40 to 2020-W43; the first is due from 2020-10-05, 0:00 UTC" in made.out
    assert "at delta 1e-06, as the ledger counts; added up it would be 8.1" in made.out
    assert set(files_in(here / "autumn")) == {"campaign.json", "items.txt"}
    first = fedhist(*RUN, "--until", "2020-10-12")
    assert first.code == 0, first.err
    assert "released: 2020-W40" in first.out and "released: 2020-W41" in first.out
    assert "next:  2020-W42 is due" in first.out
    shown = fedhist("campaign", "show", "autumn")
    assert "released" in shown.out and "for one user, ever" in shown.out
    rest = fedhist(*RUN, "--json").document()
    assert rest["released"] == list(WEEKS[2:])
    assert [window["status"] for window in rest["windows"]] == ["released"] * 4
    assert rest["spent"]["epsilon"] <= 4
    assert rest["windows_left"] == 0
    assert "nothing is due" in fedhist(*RUN).out
    page = (here / "autumn" / "index.html").read_text()
    assert "bakery" in page and 'href="2020-W40/histogram.csv"' in page
    limit = fedhist("ledger", "show", "people.ledger", "--json").document()
    assert limit["limit"] == {"epsilon": 4.0, "delta": 1e-6}
    assert limit["runs_left"] == 0
    assert fedhist("campaign", "show", "autumn", "--json").document()["windows"] == rest["windows"]


def test_the_page_of_the_documents_shows_what_the_command_prints(fedhist: Fedhist, here: Path) -> None:
    page = (ROOT / "docs/campaigns.md").read_text(encoding="utf-8")
    shown = re.findall(r"^    ((?:calendar|total|a window|all): .*)$", page, re.MULTILINE)
    command = re.search(r"^fedhist (campaign new .*?)[^\\]$", page, re.MULTILINE | re.DOTALL)
    assert command is not None and len(shown) == 4
    printed = fedhist(*shlex.split(command[0].replace("\\\n", " "))[1:]).out.splitlines()
    assert printed[:4] == [line.replace("...", str(here)) for line in shown]


def test_what_can_only_be_useless_is_said_when_it_is_made(fedhist: Fedhist, here: Path) -> None:
    made = fedhist(*NEW, "--users", 50)
    assert made.code == 0
    second = fedhist("campaign", "new", "second", "--windows", "2021", "--ledger", "people.ledger")
    assert "the ledger has 1 other campaign:" in second.err
    again = fedhist(*NEW)
    assert again.code == 2 and "autumn exists already" in again.err and "--out" not in again.err
    assert "the choice of the threshold will be close to chance" in made.err
    weak = fedhist(
        *("campaign", "new", "weak", "--windows", "2020-W40", "--ledger", "other.ledger"),
        *("--total-epsilon", 50, "--total-delta", 0.1, "--users", 100),
    )
    assert "protects hardly anybody" in weak.err and "above 1/users" in weak.err
    assert "only nodes of Flower" in weak.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--windows", "2020-10-01"), "share a day"),
        (("--domain", "closed"), "without a list of items"),
        (("--items-file", "missing.txt"), "no such file"),
        (("--items-file", "shops.txt", "--domain", "open"), "an open domain with a list of items"),
        (("--selector", "oracle"), "not private"),
        (("--bins", "3,1"), "bins|edges"),
        (("--spare", "-3"), "--spare is -3"),
        (("--thresholds", "sometimes"), "sometimes"),
        (("--total-epsilon", "0"), "epsilon"),
        (("--total-delta", "2"), "delta"),
        (("--user-column", "item"), "one column is named for two things"),
        (("--epsilon", "1"), "No such option"),
        (("--ledger", "autumn"), "is the campaign's folder and its ledger"),
        (("--ledger", "a" * 300), "can't be read"),
        (("--items-file", "shops.txt", "--bins", "1,2"), "bins together with another choice"),
    ],
)
def test_a_wrong_flag_leaves_nothing_behind(
    fedhist: Fedhist, here: Path, arguments: tuple[str, ...], says: str
) -> None:
    before = files_in(here)
    said = fedhist(*NEW, *arguments)
    assert said.code == 2
    assert any(part in said.err for part in says.split("|")), said.err
    assert files_in(here) == before


def test_run_refuses_what_it_can_not_run_before_it_charges(fedhist: Fedhist, here: Path) -> None:
    assert fedhist(*NEW).code == 0
    for arguments, says in (
        (("--data", "missing.csv"), "missing.csv"),
        (("--data", "synthetic:poisson"), "without times"),
        (("--data", "shops.txt"), "shops.txt"),
        (("--data", "visits.csv", "--again", "2020-W40"), "is due and can't be run again"),
        (("--data", "visits.csv", "--until", "tomorrow"), "--until is 'tomorrow'"),
        (("--data", "visits.csv", "--until", "2999-01-01"), "still to come"),
        (("--data", "visits.csv", "--until", "9999-12-31T23:59-14:00"), "still to come"),
        (("--data", "visits.csv", "--workers", "0"), "workers"),
    ):
        said = fedhist("campaign", "run", "autumn", *arguments)
        assert said.code == 2 and says in said.err, said.err
    ledger = fedhist("ledger", "show", "people.ledger", "--json").document()
    assert [run["data"].partition(" ")[0] for run in ledger["runs"]] == ["campaign"]
    assert fedhist("campaign", "show", "nowhere").code == 2


def test_a_limit_that_others_used_up_is_said_before_and_refused_then(fedhist: Fedhist, here: Path) -> None:
    assert fedhist(*NEW, "--items-file", "shops.txt").code == 0
    other = (
        *("run", "--data", "visits.csv", "--items-file", "shops.txt", "--no-evaluate"),
        *("--epsilon", 2, "--ledger", "people.ledger", "--quiet", "--out", "other"),
    )
    assert fedhist(*other).code == 0
    assert "of the 4 windows to come fit" in fedhist("campaign", "show", "autumn").out
    said = fedhist(*RUN)
    assert said.code == 3
    assert "Released before that: 2020-W40" in said.err
    shown = fedhist("campaign", "show", "autumn", "--json").document()
    assert [one["status"] for one in shown["windows"]].count("due") >= 1


def test_a_window_that_broke_off_is_reported_and_run_again_by_name(
    fedhist: Fedhist, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fedhist(*NEW, "--items-file", "shops.txt", "--spare", 1).code == 0

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(result_folder_module, "write_text", full)
        said = fedhist(*RUN)
    assert said.code == 1 and "what the run has charged stays charged" in said.err
    assert "2020-W40 was charged and not released" in fedhist("campaign", "show", "autumn").out
    rest = fedhist(*RUN)
    assert rest.code == 0 and "it broke off" in rest.err
    assert "released: 2020-W40" not in rest.out
    assert "released: 2020-W40" in fedhist(*RUN, "--again", "2020-W40").out
    assert "broke off" not in (here / "autumn" / "index.html").read_text().partition("Calendar")[0]


def test_the_page_holds_no_markup_of_a_name(fedhist: Fedhist, here: Path) -> None:
    hostile = "<script>alert(1)</script>"
    table = visits()
    table.with_columns(item=table["item"].replace("cinema", hostile)).write_csv("visits.csv")
    fedhist(*NEW[:-4], "--total-epsilon", 60, "--total-delta", 1e-3)
    assert fedhist(*RUN).code == 0
    page = (here / "autumn" / "index.html").read_text()
    assert "alert(1)" in page and hostile not in page


def test_a_total_that_the_limit_has_no_room_for_is_noted(fedhist: Fedhist, here: Path) -> None:
    for limit in (3, 4):
        fedhist("ledger", "limit", "people.ledger", "--epsilon", limit, "--delta", 1e-6, "--replace")
        made = fedhist(*NEW[:2], f"of-{limit}", *NEW[3:], "--items-file", "shops.txt")
        assert made.code == 0
        assert ("epsilon 3, has no room for a total of 4" in made.err) is (limit == 3)


def test_the_help_has_the_defaults_that_hold(fedhist: Fedhist) -> None:
    said = " ".join(fedhist("campaign", "new", "--help").out.split())
    assert "[default: closed with --items-file or --bins, else open]" in said
    assert "[default: a share of the window's epsilon]" in said


def test_a_folder_that_the_disk_refuses_is_no_result(
    fedhist: Fedhist, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(definition_module, "write_text", full)
    said = fedhist(*NEW)
    assert said.code == 1 and "there is no campaign, and nothing was charged" in said.err
    assert not (here / "autumn").exists() and not (here / "people.ledger").exists()


def test_a_ledger_says_that_a_campaign_is_defined_and_not_released(fedhist: Fedhist, here: Path) -> None:
    assert fedhist(*NEW).code == 0
    shown = fedhist("ledger", "show", "people.ledger").out
    assert "defined" in shown and "released" not in shown


def test_a_hidden_number_of_users_is_given_with_the_campaign(fedhist: Fedhist, here: Path) -> None:
    hidden = (*NEW, "--items-file", "shops.txt", "--neighbours", "add-or-remove-one")
    refused = fedhist(*hidden)
    assert refused.code == 2 and "without a number of users" in refused.err
    assert not Path("autumn").exists() and not Path("people.ledger").exists()
    assert fedhist(*hidden, "--users", 77).code == 0
    done = fedhist(*RUN, "--until", "2020-10-12")
    assert done.code == 0, done.err
    for window in WEEKS[:2]:
        document = json.loads(Path("autumn", window, "result.json").read_text())
        assert (document["users_answered"], document["users_public"]) == (
            {"select": 77, "release": 77},
            False,
        )
