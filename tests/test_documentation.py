"""The documentation tells the truth: its code runs, its links lead somewhere, its commands exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fedhist import Plan
from tests.builders import ROOT, commands, parse
from tests.support.api import MAX_LABEL_BYTES, SELECTORS, KeptItems, fitting

README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
START = DOCS / "index.md"
OPEN_DOMAIN = DOCS / "open-domain.md"
PLAN_AHEAD = DOCS / "plan-ahead.md"
LEDGER = DOCS / "ledger.md"
RUNNABLE = [
    README,
    START,
    OPEN_DOMAIN,
    PLAN_AHEAD,
    LEDGER,
    *(
        DOCS / f"{name}.md"
        for name in (
            "api",
            "api-rounds",
            "campaigns",
            "data",
            "debiased-counts",
            "masking",
            "open-domain-bar",
            "trace",
        )
    ),
]

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
NAMED_PAGE = re.compile(r"(?<![\w/])(docs/[\w/-]+\.(?:md|ipynb))(#[\w-]+)?")
CODE_SPAN = re.compile(r"`([^`\n]+)`")
TABLE_ROW_OF_NAME = re.compile(r"^\| `([a-z0-9-]+)`[^|]*\| ([^|]+) \|", re.MULTILINE)
# What the table of selectors calls a selector's modes.
PLANS = {
    "gaussian": Plan(users=9, items=3),
    "laplace": Plan(users=9, items=3, mechanism="laplace"),
    "open": Plan(users=9, domain="open", release="truncated-laplace"),
    "debias": Plan(users=9, items=3, debias="poisson"),
}

# Folders that hold somebody's home, work or scratch space; a fresh clone has them elsewhere or not at all.
MACHINE_PATH = re.compile(r"(?<![\w.:/~-])/(?:home|root|Users|work|tmp|mnt|opt|srv|private)/[\w.]")
MADE_BY_TOOLS = re.compile(
    r"\.git|\.venv.*|build|dist|.*\.egg-info|\..*_cache|\.hypothesis|__pycache__|fedhist-run-.*"
)


def named(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=[str(page.relative_to(ROOT)) for page in pages])


def blocks(page: Path, *languages: str) -> Iterator[tuple[int, str]]:
    """The line where each fenced block of these languages begins, and its text."""
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        if match[1] in languages:
            yield text.count("\n", 0, match.start(2)), match[2]


def shell_lines(page: Path) -> Iterator[str]:
    """The commands of the page: every line of a sh block, and after the prompt in a console block."""
    for _, text in blocks(page, "sh"):
        yield from text.replace("\\\n", " ").splitlines()
    for _, text in blocks(page, "console"):
        yield from (line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ "))


def fedhist_commands(page: Path) -> Iterator[list[str]]:
    """The arguments of every call of fedhist on the page."""
    for line in shell_lines(page):
        for call in re.split(r"&&|\|", line):
            words = shlex.split(call, comments=True)
            if words and Path(words[0]).name == "fedhist":
                yield words[1:]


def all_flags() -> set[str]:
    return {
        flag
        for command in commands().values()
        for parameter in command.get_params(click.Context(command))
        for flag in (*parameter.opts, *parameter.secondary_opts)
    }


def anchors(page: Path) -> set[str]:
    """The names that a link to a heading of this page may have, made as GitHub makes them."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)}


def project_files() -> Iterator[Path]:
    folders = [ROOT]
    while folders:
        for path in sorted(folders.pop().iterdir()):
            if MADE_BY_TOOLS.fullmatch(path.name):
                continue
            if path.is_dir():
                folders.append(path)
            else:
                yield path


@named(RUNNABLE)
def test_python_blocks_run_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = list(blocks(page, "python"))
    assert found
    namespace: dict[str, object] = {"__name__": "documentation"}
    for line, text in found:
        # Blank lines in front, so that a traceback shows the page's own line.
        code = compile("\n" * line + text, str(page), "exec")
        exec(code, namespace)  # noqa: S102 - the documentation's own code is what is tested


@named(PAGES)
def test_relative_links_lead_somewhere(page):
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{target} does not exist"
        assert linked.is_relative_to(ROOT), f"{target} leaves the project"
        assert not anchor or anchor in anchors(linked), f"{target}: no such heading"


def test_pages_that_the_code_names_exist():
    """In docstrings, comments, help and errors."""
    for path in project_files():
        if path.suffix in {".py", ".toml", ".yaml", ".css", ".js"}:
            for name, anchor in NAMED_PAGE.findall(path.read_text(encoding="utf-8")):
                where = f"{path.relative_to(ROOT)} names {name}{anchor}"
                assert (ROOT / name).is_file(), where
                assert not anchor or anchor[1:] in anchors(ROOT / name), where


@named(PAGES)
def test_commands_parse(page, tmp_path, monkeypatch, no_plugins):
    monkeypatch.chdir(tmp_path)
    for _, text in blocks(page, "python"):
        if file := re.match(r"# (\w+\.py)\n", text):
            (tmp_path / file[1]).write_text(text, encoding="utf-8")
    for arguments in fedhist_commands(page):
        try:
            parse(arguments)
        except click.ClickException as error:
            pytest.fail(f"fedhist {shlex.join(arguments)}: {error.format_message()}")


def test_a_wrong_flag_or_choice_in_a_command_is_noticed():
    for wrong in (
        "rnu",
        "run --epsilons 1",
        "run --neighbours swap",
        "ledger show",
        "ledger limit f --epsilon 1",
    ):
        with pytest.raises(click.ClickException):
            parse(shlex.split(wrong))


@named([README, *sorted(DOCS.rglob("*.md"))])
def test_flags_in_the_text_exist(page):
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    used = {flag for span in CODE_SPAN.findall(text) for flag in re.findall(r"(?<!\S)--[a-z][a-z-]*", span)}
    known = all_flags() | {"--help", "--strict", "--disable-runtime-dependency-installation"}
    assert used <= known, f"no command has {sorted(used - known)}"


def test_the_table_of_exit_codes_is_that_of_the_help(fedhist):
    table = (DOCS / "commands.md").read_text(encoding="utf-8").split("| code | meaning |")[1]
    codes = re.findall(r"^\| (\d+) \|", table.split("\n\n")[0], re.MULTILINE)
    help_text = " ".join(fedhist("--help").out.split())
    listed = re.findall(r"(?:: |, )(\d+) ", help_text[help_text.index("Exit codes") :])
    assert listed == codes == ["0", "1", "2", "3", "4", "5", "130"]


def test_the_table_of_selectors_is_the_registry():
    rows = dict(TABLE_ROW_OF_NAME.findall((DOCS / "selectors.md").read_text(encoding="utf-8")))
    assert set(rows) == set(SELECTORS.with_installed())
    for name, cell in rows.items():
        assert set(cell.split(", ")) == {kind for kind, plan in PLANS.items() if name in fitting(plan)}, name


def test_the_pages_on_open_domains_name_every_selector_release_and_limit_of_them():
    text = "".join(page.read_text(encoding="utf-8") for page in (OPEN_DOMAIN, DOCS / "open-domain-bar.md"))
    known = set(fitting(PLANS["open"]))
    named = set(re.findall(r"`([a-z0-9-]+)`", text))
    assert known | set(KeptItems.releases) <= named
    assert f"{MAX_LABEL_BYTES:,} bytes" in text


@pytest.mark.parametrize(
    ("page", "domain"), [(START, []), (OPEN_DOMAIN, ["--domain", "open"])], ids=["closed", "open"]
)
def test_a_session_on_a_page_looks_like_a_run(page, domain, fedhist, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    run = fedhist("run", *domain, "--users", 400, "--items", 10, "--seed", 1)
    assert run.code == 0, run.err
    beginning = shlex.join(["$", "fedhist", "run", *domain, "--seed"]).replace("'$'", "$")
    session = next(text for _, text in blocks(page, "console") if text.startswith(beginning))
    assert row_labels(session) == row_labels(run.out)
    notes = {line for line in session.splitlines() if line.startswith("note:")}
    assert notes and notes <= {line.rstrip() for line in run.out.splitlines()}


def test_the_sessions_on_planning_ahead_are_what_the_command_prints(fedhist, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    sessions = [text for _, text in blocks(PLAN_AHEAD, "console")]
    assert sessions
    for session in sessions:
        command, _, printed = session.partition("\n")
        run = fedhist(*shlex.split(command.removeprefix("$ fedhist ")))
        assert run.code == 0, run.err
        assert [line.rstrip() for line in (run.out + run.err).splitlines()] == printed.splitlines()


def row_labels(output: str) -> list[str]:
    """What stands at the left of each row before the ledger, and the headings and names of the ledger."""
    rows = [line.split("  ")[0] for line in output.splitlines() if re.match(r"[a-z][\w ]*? {2,}\S", line)]
    ledger = [cell.strip() for line in output.splitlines() if "┃" in line for cell in line.split("┃")]
    return [*rows, *filter(None, ledger)]


def test_no_file_holds_a_path_of_some_machine():
    for path in project_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found = MACHINE_PATH.search(text)
        assert found is None, f"{path.relative_to(ROOT)} holds {found[0] if found else ''}..."


@pytest.mark.parametrize(
    ("text", "noticed"),
    [
        ("see {0}home/ana/data", True),
        ("'{0}tmp/x.csv'", True),
        ("https://example.org{0}work/x", False),
        ("{0}dev/null", False),
    ],
)
def test_paths_of_machines_are_noticed(text, noticed):
    assert bool(MACHINE_PATH.search(text.format("/"))) == noticed
