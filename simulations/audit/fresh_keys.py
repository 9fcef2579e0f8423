"""Audits of the keys that an open domain shows: keys that one user alone holds, against delta.

Without the user none of these keys can be shown, so the chance that any is shown is at most delta. The worst users have
one key with the whole bound, or as many keys as the bound; a third has many more, of which clipping keeps few.
"""

from __future__ import annotations

from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.neighbours import Neighbours
from fedhist.server.releases.contract import Release
from fedhist.simulations.audit.bounds import event_epsilon
from fedhist.simulations.audit.findings import Finding, Setting, compared
from fedhist.simulations.audit.worlds import User, crafted, repeated

BOUND = 5
DELTA = 0.05
USERS: dict[str, User] = {
    "one key": [(1, 3 * BOUND)],
    "a key each": [(1 + key, 1) for key in range(BOUND)],
    "many keys": [(1 + key, 1) for key in range(60 * BOUND)],
}
_COMMON, _HOLDERS = "common", 12


def fresh_keys(release: str, user_kind: str, neighbours: Neighbours, setting: Setting) -> Finding:
    """Whether a key of the user's own is shown in some release, for one kind of user of USERS."""
    user = USERS[user_kind]
    plan = Plan(
        users=_HOLDERS + 1,
        domain="open",
        selector="fixed",
        threshold=float(BOUND),
        max_threshold=8.0,
        epsilon=2.0,
        delta=DELTA,
        release=release,
        neighbours=neighbours,
    )
    size = 1 + max(item for item, _ in user)
    labels = [_COMMON, *(f"fresh {key}" for key in range(1, size))]
    others: list[User] = [[(0, BOUND)]] * _HOLDERS
    # Under replacement the user had the common key before.
    before: User = [(0, BOUND)] if neighbours is Neighbours.REPLACE_ONE else []
    source, runs = setting.mechanism(), setting.effort.runs
    populations = crafted([*others, user], size, labels), crafted([*others, before], 1, [_COMMON])
    shown, claim = repeated(plan, populations[0], runs, _shows_others, source=source.fork("with"))
    with_user = sum(shown)
    without = sum(repeated(plan, populations[1], runs, _shows_others, source=source.fork("without"))[0])
    bound = event_epsilon(with_user, runs, without, runs, delta=claim.delta, alpha=setting.alpha)
    return compared(setting, claim, bound, f"fresh keys in {with_user:,} and {without:,} of {runs:,} runs")


def _shows_others(release: Release) -> bool:
    """True if the release has a key other than the common one."""
    return any(label != _COMMON for label in release.labels or ())
