"""The plugins that a plan's JSON names, beside those that there are on this side."""

from __future__ import annotations

from fedhist.protocol.errors import InvalidPlan, OtherPlugin
from fedhist.protocol.plugins.identity import first_difference, is_identity, not_here
from fedhist.protocol.plugins.registry import registered


def named_plugins(value: object) -> tuple[str, ...] | None:
    """The identities in a plan's JSON; None where it names none."""
    if value is None:
        return None
    if not (isinstance(value, list) and all(map(is_identity, value))):
        raise InvalidPlan("the plan's plugins are not a list of identities", allowed="what to_json wrote")
    return tuple(value)


def check_same(named: tuple[str, ...] | None, here: tuple[str, ...]) -> None:
    """Refuse a plan whose methods are missing here or have other code. One that names none takes what there is."""
    if named is None or named == here:
        return
    wanted, found = first_difference(named, here)
    raise OtherPlugin(
        f"{wanted}; {found}",
        allowed="the same code on every side",
        advice="load it with --plugin FILE or fedhist.load_plugin, or install its package",
    )


def check_described(named: tuple[str, ...] | None) -> None:
    """Refuse to read about a run whose release rule or measurement is not here: they describe what it released."""
    here = tuple(str(plugin.identity) for plugin in registered())
    if missing := not_here(named or (), here):
        raise OtherPlugin(
            f"this run used the {missing}, which is missing here",
            allowed="runs whose release rules and measurements are loaded",
            advice="add --plugin FILE",
        )
