"""A node that answers each day in one run: asked for a second look at a window under every disguise."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import polars as pl
from local_grid import Node, be_a_server, context_of, data_of, message_of

from attack_rows import attack
from fedhist.client import flower as client_app
from fedhist.client.files.columns import INSIDE, Columns, with_inside
from fedhist.client.memory_file import MemoryFile
from fedhist.client.policy import Policy
from fedhist.protocol.errors import FedhistError, Refused
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.window import Window
from fedhist.protocol.rounds import Round
from fedhist.protocol.wire.envelope import Envelope, items_digest
from tests.asking import release_at, select_request

SHOPS = ["a", "b", "c"]
FIRST_DAY = date(2026, 1, 1)
DAYS = 60
USUAL = {"users": 20, "items": 3, "max_threshold": 500, "epsilon": 5.0, "epsilon_select": 5.0}


@contextmanager
def folder_of_a_node() -> Iterator[Path]:
    """Its table, its list of items, and room for its memory."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        days = [FIRST_DAY + timedelta(days=number % DAYS) for number in range(240)]
        rows = {"user": [f"u{number % 20}" for number in range(240)], "item": SHOPS * 80, "when": days}
        pl.DataFrame(rows).write_csv(place / "visits.csv")
        (place / "shops.txt").write_text("\n".join(SHOPS))
        yield place


def started(place: Path, memory: str = "memory.db") -> Node:
    """The node as it is after a start: all that it knows is in its files."""
    be_a_server()
    node = Node(client_app.app, 100)
    node.context = context_of(
        node=100,
        items_path=str(place / "shops.txt"),
        data_path=str(place / "visits.csv"),
        time_column="when",
        memory_path=str(place / memory),
    )
    return node


def asked(window: str | None, run: str, round_: Round = Round.RELEASE, **settings: object) -> Envelope:
    plan = Plan(**(USUAL | {"window": window} | settings))  # type: ignore[arg-type]
    at_most = plan.at_steps(plan.step_range[1])
    request = release_at(plan, at_most) if round_ is Round.RELEASE else select_request(plan)
    return Envelope(run=run, request=request, items_digest=items_digest(SHOPS))


def spellings(window: Window, dice: random.Random) -> str:
    """The same days in one of the ways to write them."""
    return dice.choice([window.text, f"{window.first}/{window.last}"])


def some_window(dice: random.Random) -> Window:
    first = FIRST_DAY + timedelta(days=dice.randrange(DAYS))
    week = first.isocalendar()
    return dice.choice(
        [
            Window(first, first + timedelta(days=dice.randrange(9))),
            Window.parse(f"{week.year}-W{week.week:02}"),
            Window.parse(f"{first:%Y-%m}"),
            Window(first, first),
        ]
    )


def sharing(window: Window, dice: random.Random) -> Window:
    """Another window that shares at least one day with this one."""
    day = window.first + timedelta(days=dice.randint(0, (window.last - window.first).days))
    return dice.choice(
        [
            window,
            Window(day, day),
            Window(day - timedelta(days=dice.randrange(40)), day),
            Window(day, day + timedelta(days=dice.randrange(400))),
            Window.parse(f"{day:%Y}"),
            Window(date(1000, 1, 1), date(9998, 12, 31)),
        ]
    )


OTHER_NAMES = ("two", "One", "one ", "one/release", "one/select", "öne", "0")


@attack(
    "a second look at a day: overlapping windows, other spellings, names, budgets and rounds, after restarts"
)
def second_look(quick: bool) -> tuple[int, int]:
    dice, tries, successes = random.Random(1), 0, 0
    for _ in range(2 if quick else 25):
        with folder_of_a_node() as place:
            first = some_window(dice)
            if not data_of(started(place).answer(message_of(asked(spellings(first, dice), "one")))):
                continue
            for _ in range(6 if quick else 40):
                window, run = spellings(sharing(first, dice), dice), dice.choice(OTHER_NAMES)
                try:
                    envelope = asked(
                        dice.choice([window, window, window, None]),
                        run,
                        dice.choice([Round.SELECT, Round.RELEASE]),
                        epsilon=dice.choice([1e-9, 0.1, 5.0]),
                        delta=dice.choice([1e-9, 1e-7]),
                        users=dice.choice([20, 10**6]),
                    )
                    message = message_of(envelope)
                except FedhistError:
                    continue
                tries += 1
                successes += data_of(started(place).answer(message)) is not None
    return tries, successes


@attack("two runs at once ask for windows that share a day")
def at_once(quick: bool) -> tuple[int, int]:
    dice, tries, successes = random.Random(2), 0, 0
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(4) as threads:
        for number in range(20 if quick else 300):
            memory, window = MemoryFile(Path(place) / f"{number}.db"), some_window(dice)
            requests = [asked(spellings(sharing(window, dice), dice), str(run)) for run in range(3)]
            requests = [replace(one, run=f"run {place}") for place, one in enumerate(requests)]
            # All three share a day with `window`, which is one day here, so with each other.
            day = Window(window.first, window.first)
            requests = [asked(spellings(sharing(day, dice), dice), one.run) for one in requests]

            def admitted(envelope: Envelope, memory: MemoryFile = memory) -> bool:
                try:
                    memory.admit(Policy(), envelope)
                except Refused:
                    return False
                return True

            tries += 1
            successes += sum(threads.map(admitted, requests)) != 1
    return tries, successes


@attack("a row at a border between windows, with time zones, is read in two of them or in none")
def borders(quick: bool) -> tuple[int, int]:
    dice, rows = random.Random(3), 200 if quick else 5000
    edges = [datetime(2026, month, 1, tzinfo=UTC) for month in range(1, 13)]
    zones = [timezone(timedelta(minutes=15 * quarter)) for quarter in range(-48, 57)]
    moments = [
        (dice.choice(edges) + timedelta(microseconds=dice.choice([-1, 0, 1, -999_999, 500_000]))).astimezone(
            dice.choice(zones)
        )
        for _ in range(rows)
    ]
    texts = [moment.isoformat(sep=dice.choice("T ")) for moment in moments]
    times = [pl.Series(texts), pl.Series([moment.astimezone(edges[0].tzinfo) for moment in moments])]
    windows = [Window.parse("2025"), *(Window.parse(f"2026-{month:02}") for month in range(1, 13))]
    tries = successes = 0
    for series in times:
        found = sum(
            with_inside(
                pl.DataFrame({"time": series}), window, Columns(time="when"), lambda row, column: "a row"
            )[INSIDE].cast(pl.Int64)
            for window in windows
        )
        tries += rows
        successes += int((pl.Series(found) != 1).sum())
    return tries, successes


@attack("windows of the far past and future, or of no calendar, are read as others or charged as nothing")
def odd_windows(quick: bool) -> tuple[int, int]:
    texts = [
        "0000", "0999", "1000", "9998", "9999", "10000", "2026-00", "2026-13", "2026-W00", "2026-W54",
        "2026-02-30", "2026-11-18/2026-11-17", "2026-11-18/2026-11-18/2026-11-18", "２０２６", "2026 ",
        " 2026", "2026\n", "2026-11-18T00:00", "-2026", "+2026", "2026-1", "", "all", "2026-W53", "2025-W53",
        "1000-01-01/9998-12-31", "2026-366", "2026W47", "2026-11-18/P1D", "٢٠٢٦", "2026-11-18/2026-11-18\x00",
    ]  # fmt: skip
    tries = successes = 0
    with folder_of_a_node() as place:
        for number, text in enumerate(texts):
            tries += 1
            try:
                Window.parse(text)
                message = message_of(asked(text, f"run {number}"))
            except FedhistError:
                continue
            memory = place / f"{number}.db"
            reply = started(place, memory.name).answer(message)
            kept = MemoryFile(memory).read() if memory.exists() else None
            charged = kept is not None and kept.windows and kept.spent.epsilon > 0
            successes += data_of(reply) is not None and not charged
    return tries, successes
