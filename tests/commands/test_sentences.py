"""Mistakes, each answered with one sentence: those that people meet most in tests/vectors/sentences.txt, whole."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.builders import ROOT, Fedhist, files_in, write_npz, write_records
from tests.support.api import is_hidden

GOLDEN = [
    block.strip().split("\n", 1)
    for block in (ROOT / "tests/vectors/sentences.txt").read_text(encoding="utf-8").split("\n\n")
]


# What a mistake meets: tables, lists and documents of every kind, and what is none of them.
FILES = {
    "ages.csv": "uid;age\n1;34\n2;51\n",
    "negative.csv": "user,item,count\nann,tea,1\nbob,tea,-918273\n",
    "first.csv": "user,item,count\nann,tea,-1\n",
    "long.csv": "user,item\n" + "".join(f"u{user},{'secret' * 200}\n" for user in range(9)),
    "late.csv": "user,item\n"
    + "".join(f"u{user},{'tea' if user < 450 else 'secret' * 200}\n" for user in range(451)),
    "people.csv": "user,item,count\n" + "".join(f"u{user},tea,1\n" for user in range(4711)),
    "damaged.npz": "PK\x03\x04 this is no archive",
    "visits.xlsx": "user,item,count\nann,tea,1\n",
    "items.txt": "tea\nmilk\n",
    "empty.txt": "",
    "twice.txt": "a\nb\na\n",
    "latin.txt": "\xff",
    "bad.jsonl": '{"trace": 3}\n',
    "wrong.json": '{"plan": {"epsilonn": 1}}',
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("visits.csv", "copy.csv"):
        write_records(tmp_path / name, [("ann", "tea", 1), ("bob", "milk", 2)])
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content.encode("latin-1"))
    write_npz(tmp_path / "numbers.npz", [[1, 2, 0], [0, 3, 1]])
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "taken").mkdir()
    return tmp_path


@pytest.mark.parametrize(("command", "sentence"), GOLDEN, ids=[command for command, _ in GOLDEN])
def test_a_mistake_is_answered_with_one_sentence(
    fedhist: Fedhist, folder: Path, command: str, sentence: str
) -> None:
    """Exit code 2, nothing printed, nothing written, and nothing of what a user has."""
    before = files_in(folder)
    outcome = fedhist(*shlex.split(command.removeprefix("$ fedhist ")))
    assert outcome.err.replace(f"{folder}/", "").strip() == sentence
    assert (outcome.code, outcome.out) == (2, "")
    assert files_in(folder) == before


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        name: (folder / name).read_bytes() if (folder / name).is_file() else None for name in files_in(folder)
    }


HIDDEN = "run --data people.csv --out r --neighbours add-or-remove-one --users 30"
# Whole commands by what they begin with, and the words that answer each.
MISTAKES = {
    "": [
        *((f"{call} '\x1b[31m\n'", "") for call in ("", "trace show", "compare --data")),
        ("rnu", "Did you mean 'run'?"),
        ("paper sentiment140s", "Did you mean 'sentiment140'?"),
        ("zzzzzz", "Commands: run, plan"),
        ("--epsilon 1", "--epsilon goes after the name of a command"),
        ("campaign show nowhere", "nowhere"),
        ("plan --data visits.csv --csv ./visits.csv --force", "--csv names a file that is read"),
        ("new taken", "exists"),
        ("compare --data nothing.csv", "there is no file"),
        (
            "compare --data visits.csv --data copy.csv --selectors oracle --trials 1 --workers 1 --out run",
            "visits and copy have the same content",
        ),
    ],
    "run": [
        ("--data '\x1b[31m\nno such.csv'", "no such.csv"),
        ("'--\x1b[31m'", "--"),
        ("--selector '\x1b[31m\n'", "--selector"),
        ("--users 800 --items 20 --trace --out r --ledger missing/l.db", "missing does not exist"),
        ("--epsilom 1", "--epsilon"),
        ("visits.csv", "a file is given with --data. See 'fedhist run --help'"),
        ("--epsilon", "See 'fedhist run --help'"),
        (
            "--data visits.csv --memory '12 apples'",
            "--memory is 12 apples; allowed: a number of bytes from 256MiB on",
        ),
        ("--data negative.csv --domain closed", "inferred from the data"),
    ],
    "run --users 300 --items 8 --seed 1 --json": [
        ("--set candidatse=12", "did you mean candidates?"),
        ("--set candidates", "FIELD=VALUE"),
        ("--set candidates=many", "'many' is not a valid integer"),
        ("--set domain=half", "'half' is not one of"),
        ("--candidates 12 --set candidates=13", "a second time"),
        ("--set users=12", "there is no field 'users'"),
        ("--plan none.json", "plan.json or result.json"),
        ("--plan wrong.json", "did you mean epsilon?"),
    ],
    "run --users 800 --items 20 --ledger l.db --out": [
        *((place, "exists already") for place in ("taken", "items.txt", "link")),
        *((place, "can't") for place in ("missing/r", "x" * 300, "items.txt/r")),
    ],
    "run --domain open --out r --ledger l.db --data": [
        ("damaged.npz", "damaged"),
        ("negative.csv", "line 3"),
        ("first.csv", "is negative"),
        ("visits.xlsx", "suffix that is not known"),
    ],
    "run --domain open --out r --evaluate --data": [
        ("long.csv", "1200 bytes; allowed: up to 1024 bytes"),
        ("late.csv", "1200 bytes; allowed: up to 1024 bytes"),
    ],
    "run --data visits.csv --out r --items-file": [
        *((name, ".txt") for name in ("empty.txt", "twice.txt", "latin.txt")),
        ("absent", "absent"),
    ],
    "run --out r": [
        ("--data visits.csv --domain closed", "--items-file"),
        ("--data visits.csv --domain closed --ledger l.db", "--domain open"),
        *(
            (f"--data numbers.npz --top-items 2 --domain {domain} {more}", "the top items would be inferred")
            for domain in ("closed", "open")
            for more in ("", "--ledger l.db")
        ),
    ],
    "run --data people.csv --items-file items.txt --ledger l.db --out r": [
        ("--neighbours add-or-remove-one", "without a number of users"),
        ("--users 30", "runs with --neighbours add-or-remove-one take --users with --data"),
    ],
    HIDDEN: [
        (
            "--ledger l.db --domain open --release truncated-laplace --max-threshold 32768",
            "2,147,483,648 users times max threshold",
        ),
    ],
    f"{HIDDEN} --items-file items.txt": [
        ("--ledger l.db --engine flower-simulation", "with nodes or faults"),
        ("--ledger l.db --dropout 0.1", "with nodes or faults"),
        ("--faulty inflate=0.1", "with nodes or faults"),
        ("--ledger l.db --masking secagg", "with masking secagg"),
        ("--ledger l.db --minimum-cohort 5", "with a minimum cohort above 1"),
        ("--evaluate", "with an evaluated run"),
    ],
    "plan --users 800 --items 20": [
        ("--selector exponential-v", "does not go with the gaussian mechanism"),
        ("--epsilon '\x1b[31m\n'", "--epsilon"),
        ("--epsilon 1 --csv items.txt", "--force"),
        ("--epsilon 5:1", "LOW:HIGH"),
        ("--epsilon 0,1", "values above 0"),
        ("--epsilon 1:2:100000", "asks for 100000 points"),
        ("--epsilon 1:2:1", "2 points or more"),
        ("--target-error -1", "above 0"),
        ("--total-epsilon nan", "above 0"),
        ("--total-epsilon 1 --selector fixed --threshold 5", "can't be split"),
        ("--best-split --selector oracle", "can't be split"),
        ("--best-split --epsilon-select 0.1", "one or the other"),
        ("--total-delta 1e-6 --delta 1e-6", "not both"),
        ("--mean-total 5 --distinct-items 9", "contradict"),
        ("--tail-index 0.9", "more than 1"),
        ("--sizes 50:8", "percentiles of users' totals"),
        ("--sizes 50:8,40:9", "percentiles of users' totals"),
        ("--sizes 50=8", "pairs PERCENT:TOTAL"),
        ("--sizes 50:8,99:90 --mean-total 9", "one or the other"),
        ("--data none.csv", "one or the other"),
        ("--figure a.pdf", ".svg or .png"),
        ("--figure none/a.svg", "existing, writable folder"),
        ("--normalise nfc", "--normalise needs a data file"),
        ("--top-items 5 --mean-total 9", "without --data and --top-items"),
    ],
    "compare --users 300 --items 20 --trials 2 --workers 1 --out run": [
        ("--selectors exponential-v", "does not go with"),
        ("--data nothing.csv --synthetic poisson", "there is no file"),
        ("--data synthetic:zipf?users=5", "users is given twice"),
        ("--selectors fixed", "has no threshold"),
        ("--threshold 5", "--threshold needs the selector fixed"),
        ("--release truncated-laplace", "over closed domains"),
        ("--epsilon 1,x", "not numbers"),
        ("--delta small", "1/2n"),
        ("--trials 0", "--trials"),
        ("--workers 0", "--workers"),
        ("--items 10,0", "--items"),
    ],
    "paper": [
        ("table-words", "help.sentiment140.com"),
        ("table-words --data visits.csv", "--vocabulary"),
        (
            "table-words --data visits.csv --vocabulary items.txt",
            "--vocabulary is for a .npz file without names, and visits.csv is not one",
        ),
        ("table-words --data numbers.npz --vocabulary items.txt", "2 names"),
        ("figure-debias --quick --out items.txt", "can't write into items.txt"),
        ("figure-debias --quick --out items.txt/p", "can't write into items.txt/p"),
        ("sentiment140 nothing.csv --out a.npz", "nothing.csv"),
        ("sentiment140 visits.csv --out a.npz", "visits.csv"),
        ("sentiment140 nothing.csv --out numbers.npz", "numbers.npz exists already"),
    ],
    "campaign new autumn --windows 2020-W40..2020-W43 --ledger l.db --epsilon 4 --delta 1e-6": [
        ("--windows 2020-10-01", "share a day"),
        ("--items-file missing.txt", "no such file"),
        ("--epsilon 0", "epsilon"),
        ("--delta 2", "delta"),
        ("--ledger autumn", "is the ledger"),
        (f"--ledger {'a' * 300}", "can't be read"),
        ("--total-epsilon 1", "No such option"),
    ],
    "ledger limit l.db": [
        *(
            (f"--epsilon {epsilon} --delta 0", "; allowed: a finite --epsilon")
            for epsilon in ("-1", "nan", "inf")
        ),
        *((f"--epsilon 1 --delta {delta}", "; allowed: a finite --epsilon") for delta in ("-1", "1", "nan")),
        ("--epsilon 1", "--delta"),
    ],
    "new": [
        (name, "allowed")
        for name in ("9lives", "my_app", "app-", "flwr", "été", "'a b'", "a" * 33, "..", "nowhere/app")
    ],
}


@pytest.mark.parametrize(
    ("command", "words"),
    [(f"{start} {rest}", words) for start, rows in MISTAKES.items() for rest, words in rows],
)
def test_any_mistake_is_one_sentence_before_anything_is_written_or_spent(
    fedhist: Fedhist, folder: Path, command: str, words: str
) -> None:
    """Of a table it tells neither a value nor a name, nor how many users a relation hides that hides them."""
    before = contents(folder)
    outcome = fedhist(*shlex.split(command))
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1
    assert words in outcome.err
    assert not [told for told in ("918273", "secret", "4711", "4,711") if told in outcome.err]
    assert not is_hidden(outcome.err.rstrip("\n"))
    assert contents(folder) == before
