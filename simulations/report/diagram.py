"""The two rounds as a sequence diagram to step through: work, messages and drop-outs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedhist.display.plurals import counted
from fedhist.display.visible_text import visible
from fedhist.protocol.masking.stages import MaskingStage
from fedhist.protocol.measurements.contract import Words as RoundWords
from fedhist.protocol.plan import Plan
from fedhist.protocol.rounds import Round
from fedhist.server.withholding import length_tells
from fedhist.server.words import charged_ahead, discovery_words, release_words, round_words
from fedhist.simulations.report.charts import NOT_PRIVATE, number
from fedhist.simulations.report.drawing import WIDTH
from fedhist.simulations.report.escaping import text
from fedhist.simulations.report.marks import Box, Mark, Stroke, Words
from fedhist.simulations.report.narration import STAGES
from fedhist.simulations.report.run_data import RunData
from fedhist.simulations.report.svg import element

DEVICES, SERVER = "devices", "server"
_ROW, _TOP = 46, 40
_BOX = 150
_LANE = {DEVICES: _BOX / 2 + 1, SERVER: WIDTH - _BOX / 2 - 1}


@dataclass(frozen=True)
class Step:
    """One step.

    Args:
        start, end: the lanes between which something is sent; the same for work done at one side.
        title: a few words, on the picture.
        detail: a sentence or two, beside it.
        round: "select", "release" or "" for neither.
        dropped: the drop-outs of this step in words, or empty.
    """

    start: str
    end: str
    title: str
    detail: str
    round: str = ""
    dropped: str = ""


def draw_steps(steps: list[Step]) -> str:
    """The picture: two lanes, and an arrow or a box for each step."""
    height = _TOP + _ROW * len(steps) + 14
    parts = []
    for lane, x in _LANE.items():
        line = Stroke("lifeline", (((x, 26), (x, height - 6)),))
        parts += [element(Words("lane", x, 18, lane, "middle")), element(line)]
    for place, step in enumerate(steps):
        drawn = "".join(map(element, _draw_step(step, _TOP + place * _ROW)))
        parts.append(f'<g class="step" data-step="{place}">{drawn}</g>')
    return (
        f'<svg class="sequence" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="Sequence of {len(steps)} steps between devices and server, in words beside it">'
        f"{''.join(parts)}</svg>"
    )


def list_steps(steps: list[Step]) -> str:
    """The same in words."""
    items = []
    for place, step in enumerate(steps):
        dropped = f' <strong class="dropped">{text(step.dropped)}</strong>' if step.dropped else ""
        items.append(
            f'<li data-step="{place}"><b>{text(step.title)}</b> <span>{text(step.detail, 600)}</span>{dropped}</li>'
        )
    return f'<ol class="steps">{"".join(items)}</ol>'


_QUESTIONS = {
    Round.DISCOVER: "asks which items there are",
    Round.SELECT: "asks for statistics",
    Round.RELEASE: "sends the threshold",
}


def run_steps(run: RunData) -> Iterator[Step]:
    """The steps of this run, from its result alone."""
    plan, document = run.plan, run.document
    yield Step(
        SERVER,
        SERVER,
        f"plan {document.get('plan_digest', '')[:8]}",
        "The plan is fixed and public. Its hash is in every message.",
    )
    ahead, words = charged_ahead(plan), round_words(plan)
    if not run.found_nothing:
        # The threshold is chosen then, and with it the mechanism where the plan leaves that open.
        words[Round.RELEASE] = round_words(run.way)[Round.RELEASE]
    if Round.DISCOVER in words:
        yield from _round_steps(run, Round.DISCOVER, words[Round.DISCOVER], ahead=Round.DISCOVER in ahead)
        found, charge = discovery_words(plan), _charge_words(document, Round.DISCOVER)
        detail = f"{'' if Round.DISCOVER in ahead else charge}{found.detail}"
        yield Step(SERVER, SERVER, found.work, detail, Round.DISCOVER)
    if run.found_nothing:
        yield Step(SERVER, SERVER, "nothing found", "No item was found: nothing was released.")
        return
    if Round.SELECT in words:
        yield from _round_steps(run, Round.SELECT, words[Round.SELECT], ahead=Round.SELECT in ahead)
        yield Step(
            SERVER,
            SERVER,
            f"C = {number(run.threshold)}",
            f"{'' if Round.SELECT in ahead else _charge_words(document, Round.SELECT)}"
            f"{_chosen_words(run)}.{_range_words(plan)}",
            Round.SELECT,
        )
    yield from _round_steps(run, Round.RELEASE, words[Round.RELEASE], ahead=Round.RELEASE in ahead)
    rule = release_words(run.way)
    yield Step(
        SERVER,
        SERVER,
        rule.work,
        f"{'' if Round.RELEASE in ahead else _charge_words(document, Round.RELEASE)}{rule.detail} {_noise_words(run)}",
        Round.RELEASE,
    )
    yield Step(
        SERVER,
        SERVER,
        "released",
        f"{_leaving(run)} leave the server, with the numbers of participants and users that answered.",
    )


def _chosen_words(run: RunData) -> str:
    """What the choice settles."""
    plan, chosen = run.plan, number(run.threshold)
    if plan.thresholds > 1:
        return f"{plan.selector} chooses a threshold for each of {plan.thresholds:,} items; the largest is {chosen}"
    both = f", together with {run.way.mechanism} noise" if plan.releasing.chooses_mechanism else ""
    return f"{plan.selector} chooses the threshold, {chosen}{both}"


def _noise_words(run: RunData) -> str:
    """How large the noise is; that of items with thresholds of their own differs."""
    if run.has_own_noise:
        low, high = number(float(run.errors.min())), number(float(run.errors.max()))
        return f"Its standard error is {low} to {high} counts, by item."
    return f"Its standard error is {number(run.document['standard_error'])} counts."


def _leaving(run: RunData) -> str:
    """What is released, as a list."""
    parts = [
        counted(len(run.values), "value"),
        "the thresholds" if run.plan.thresholds > 1 else "the threshold",
    ]
    return f"{', '.join(parts)} and the ledger"


def _range_words(plan: Plan) -> str:
    """The public range, which of a run that chooses its mechanism is another for each."""
    return (
        ""
        if plan.chooses_mechanism
        else f" The range was {plan.min_threshold:,g} to {plan.max_threshold:,g}."
    )


def _round_steps(run: RunData, round_: Round, words: RoundWords, *, ahead: bool) -> Iterator[Step]:
    """Ask, work on the devices, answer; a masked round goes on by stages. Answers with noise are charged first."""
    report = run.document.get("rounds", {}).get(round_, {})
    asked = report.get("nodes")
    whom = "every participant" if asked is None else counted(asked, "participant")
    if ahead:
        yield Step(SERVER, SERVER, "charges the ledger", _charge_words(run.document, round_).strip(), round_)
    question = _QUESTIONS[round_]
    yield Step(SERVER, DEVICES, question, f"The server asks {whom} for {words.asks}.", round_)
    yield Step(DEVICES, DEVICES, words.work, words.detail, round_)
    if run.plan.is_masked:
        yield from _masked_steps(report, round_, words.sends)
        return
    size = run.sizes.get(round_)
    mark = f" ({NOT_PRIVATE})" if length_tells(run.plan, round_) else ""
    sizes = "" if not size else f" {size:,} bytes from a device with one user{mark}."
    detail = f"Each participant sends one sum over its users.{sizes}{_cohort_words(run, report)}"
    yield Step(DEVICES, SERVER, words.sends, detail, round_, _dropped_words(report))


def _masked_steps(report: dict[str, Any], round_: str, title: str) -> Iterator[Step]:
    """The stages of a masked round, each with its drop-outs. Those not asked for keys had advertised them before."""
    stages: dict[str, Any] = report.get("stages") or {
        name: {} for name in MaskingStage if name is not MaskingStage.CONFIRMING
    }
    asked = report.get("stages", {}).get(MaskingStage.ADVERTISING, {}).get("asked", 0)
    ahead = report["nodes"] - asked if report.get("stages") else 0
    for place, (name, stage) in enumerate(stages.items()):
        words = f"{STAGES.get(name, name)[:1].upper()}{STAGES.get(name, name)[1:]}."
        if stage:
            took = "" if stage["seconds"] is None else f" in {stage['seconds']:.2f} s ({NOT_PRIVATE})"
            words += (
                f" {stage['answered']:,} of {stage['asked']:,} answer, with {stage['bytes']:,} bytes{took}."
            )
        if ahead and place == 0:
            words += f" The keys of {ahead:,} came with the answers that ended the round before."
        shown = f"masked: {title}" if name == MaskingStage.MASKING else name
        silent = stage["asked"] - stage["answered"] if stage else 0
        yield Step(DEVICES, SERVER, shown, words, round_, f"{silent:,} fell silent" if silent else "")
    included = "" if "answered" not in report else f" {_are(report['answered'])} in it."
    yield Step(
        SERVER,
        SERVER,
        "unmasks the sum",
        f"The masks cancel: the server learns the sum only.{included}",
        round_,
    )


def _cohort_words(run: RunData, report: dict[str, Any]) -> str:
    asked = report.get("nodes")
    seconds = report.get("seconds")
    took = "" if seconds is None else f" The round took {seconds:.2f} s ({NOT_PRIVATE})."
    if asked is None:
        return took
    users = report.get("users", run.plan.users)
    whom = counted(asked, "participant")
    verb = "answers" if asked == 1 else "answer"
    return f" {report.get('answered', asked):,} of {whom} {verb} for {counted(users, 'user')}.{took}"


def _are(participants: int) -> str:
    return f"{counted(participants, 'participant')} {'is' if participants == 1 else 'are'}"


def _charge_words(document: dict[str, Any], round_: str) -> str:
    entries = [entry for entry in document["ledger"] if entry["round"] == round_]
    if (
        not entries
        and round_ == Round.RELEASE
        and any(one["round"] == Round.DISCOVER for one in document["ledger"])
    ):
        return "Nothing more is charged: what finding the items cost pays for their counts, too. "
    if not entries:
        return "Nothing is charged. "
    if any(entry["epsilon"] is None for entry in entries):
        return "The ledger notes that this step is not private. "
    epsilon = sum(entry["epsilon"] for entry in entries)
    return f"The ledger is charged epsilon {number(epsilon)} first. "


def _dropped_words(report: dict[str, Any]) -> str:
    faults = {name: count for name, count in report.get("faults", {}).items() if count}
    if not faults:
        return ""
    why = ", ".join(f"{count:,} {name}" for name, count in faults.items())
    return f"{sum(faults.values()):,} left out: {why}"


def _draw_step(step: Step, top: int) -> Iterator[Mark]:
    look = step.round or "none"
    if step.start == step.end:
        x = _LANE[step.start]
        yield Box(f"work {look}", x - _BOX / 2, top, _BOX, 28)
        yield Words("step-name", x, top + 18, visible(step.title, 26), "middle")
        return
    start, end = _LANE[step.start], _LANE[step.end]
    sign = 1 if end > start else -1
    y = top + 22
    tip, back = end - 3 * sign, end - 12 * sign
    yield Stroke(f"arrow {look}", (((start + 4 * sign, y), (end - 9 * sign, y)),))
    yield Stroke(f"head {look}", (((tip, y), (back, y - 5), (back, y + 5)),), closed=True)
    yield Words("step-name", (start + end) / 2, y - 7, visible(step.title, 44), "middle")
    if step.dropped:
        x = start + 22 * sign
        yield Stroke("drop", (((x - 5, y + 8), (x + 5, y + 18)), ((x + 5, y + 8), (x - 5, y + 18))))
        anchor = "start" if sign > 0 else "end"
        yield Words("drop-name", start + 34 * sign, y + 17, visible(step.dropped, 44), anchor)
