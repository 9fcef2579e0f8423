"""The part of a run's page that plays its rounds: devices that answer, drop out or are masked, and sums that form.

The picture is drawn by motion.js from the steps of `motion_steps`; a page without a trace has nothing of it.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from fedhist.simulations.report.escaping import script_json, text
from fedhist.simulations.report.motion_steps import MOST_DOTS, MotionStep, motion_steps
from fedhist.simulations.report.page import asset
from fedhist.simulations.report.pieces import section
from fedhist.simulations.report.run_data import RunData

RELEASED_SHOWN = 24
"""The number of released values that the last step shows as bars, the largest first."""

_LEAD = (
    "Played from the run's trace: who was asked, who answered and who dropped out, in order, not at the run's speed. "
    "A trace holds no sums and no answers, so the picture shows who is in a sum, not what is in it."
)
_CAPTION = 900
_EXAMPLE = (
    "<p><b>An example, with made-up numbers.</b> Two neighbours have 3 and 4, and agree on the mask 57.</p>"
    "<table><tr><td>one sends</td><td>3 + 57</td><td>= 60</td></tr><tr><td>the other sends</td><td>4 − 57</td>"
    "<td>= −53</td></tr><tr><td>the server adds</td><td>60 − 53</td><td>= <b>7</b></td></tr></table>"
    "<p>The mask could be any number, so neither 60 nor −53 tells anything. Their sum is 3&nbsp;+&nbsp;4.</p>"
)
_LABEL = "The rounds, step by step. Space plays and pauses, left and right arrow keys step."


def motion_section(run: RunData) -> str:
    """The rounds of a traced run, to play; nothing for a run without a trace."""
    if run.trace is None:
        return ""
    faults = run.document.get("faults") or {"rounds": {}}
    lying = {name: sum(one["lying"].values()) for name, one in faults["rounds"].items()}
    steps = motion_steps(run.trace, released=len(run.values), lying=lying)
    data = {
        "steps": [_step_data(step) for step in steps],
        "released": _released(run),
        "lying": max([0, *lying.values()]),
    }
    data |= {"noun": _noun(steps), "users": run.plan.users}
    example = f'<div class="motion-example">{_EXAMPLE}</div>' if run.plan.is_masked else ""
    content = (
        f"<style>{asset('motion.css')}</style>"
        f'<div class="panel motion" tabindex="0" role="group" aria-label="{_LABEL}">'
        '<div class="motion-picture"><svg role="img" aria-label="Devices and the server"></svg>'
        '<ul class="motion-legend"></ul></div>'
        f"{_CONTROLS}"
        '<div class="motion-side"><p class="motion-round"></p><h3 class="motion-title"></h3>'
        '<div class="motion-caption" aria-live="polite"><p class="motion-what"></p><p class="motion-counts"></p></div>'
        '<div class="motion-sees"><h4>What the server sees</h4><p class="motion-seen"></p>'
        '<svg class="motion-bars" role="img" hidden></svg><p class="motion-bars-words"></p></div>'
        f'<p class="motion-spent"></p></div>{example}</div>'
        f"<p class=hint>{text(_note(run, steps), 600)}</p>"
        f"<details class=panel><summary>All {len(steps)} steps in words</summary>{_listed(steps)}</details>"
        f'<script type="application/json" id="motion-data">{script_json(data)}</script>'
        f"<script>{asset('motion.js')}</script>"
    )
    return section("motion", "The rounds, played", content, lead=_LEAD)


_CONTROLS = (
    '<div class="motion-controls" hidden>'
    '<button type="button" data-motion="play">▶ play</button>'
    '<button type="button" data-motion="back" aria-label="One step back">◀</button>'
    '<input type="range" min="0" value="0" step="1" aria-label="Step">'
    '<button type="button" data-motion="forward" aria-label="One step forward">▶</button>'
    '<output class="motion-where"></output></div>'
)


def _step_data(step: MotionStep) -> dict[str, Any]:
    """The step without what is empty."""
    return {name: value for name, value in asdict(step).items() if value not in ("", [], None, 0)}


def _released(run: RunData) -> list[float]:
    """The heights of the largest released values, -1 to 1."""
    shown = np.sort(run.values)[::-1][:RELEASED_SHOWN]
    most = float(np.abs(shown).max(initial=0.0))
    return [round(value / most, 3) for value in shown.tolist()] if most else []


def _noun(steps: list[MotionStep]) -> str:
    return "process" if max((step.participants for step in steps), default=0) == 1 else "participants"


def _note(run: RunData, steps: list[MotionStep]) -> str:
    """What a dot is."""
    participants = max((step.participants for step in steps), default=0)
    if participants == 1:
        return (
            f"This run was simulated in one process, which adds up all {run.plan.users:,} users and answers once. "
            "The small dots are its users, for scale; none of them sent a message."
        )
    if participants > MOST_DOTS:
        each = -(-participants // MOST_DOTS)
        return (
            f"A dot stands for up to {each:,} of {participants:,} participants. For every {each:,} that drop out, or a "
            "part of them, one dot does; the captions have the exact numbers."
        )
    return "A dot is one participant. Its place says nothing: numbers go from the middle outwards."


def _listed(steps: list[MotionStep]) -> str:
    items = "".join(
        f"<li><b>{text(step.title)}.</b> {text(f'{step.caption} {step.counts}', _CAPTION)} "
        f"<i>The server sees: {text(step.sees, 300)}</i></li>"
        for step in steps
    )
    return f"<ol>{items}</ol>"
