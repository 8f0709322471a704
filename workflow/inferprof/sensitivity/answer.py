"""The ranking of a graph's units as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferprof.sensitivity import measure
from inferprof.words import counted

SHOWN = 12
"""How many units, worst first."""
MOST_CI = 10.0
"""From which on an interval is not written out: two samples that differ tell nothing."""


def render(result: Mapping[str, Any], shown: int = SHOWN) -> str:
    """The ranking as text for the screen."""
    spent, joint = result["evaluations"], _db(result["joint_db"])
    alone_on = counted(result["samples_each"], "sample")
    each = f"each unit is tried alone on {alone_on} and left out of {result['left_out_each']}"
    lines = [
        conclusion(result),
        *not_looked_at(result["in_bodies"]),
        f"{counted(len(result['units']), 'unit')} in {result['precision']}, "
        f"{counted(spent['total'], 'evaluation')} of {counted(result['samples'], 'sample')}: "
        f"{spent['ranking']} for the ranking (of {spent['allowed']} allowed; {each}), "
        f"{spent['leaving_out']} leaving units out, {spent['causes']} for causes",
        f"all together {joint}, the sum of the losses alone {_db(result['predicted_db'])}: "
        f"{ {True: 'additive', False: 'not additive', None: 'not told'}[result['additive']] }",
        f"a ranking of other samples agrees with this one (Spearman): {_reproducible(result)}",
        f"{'alone':>10} {'left out':>9} {'±':>7} {'(its place)':>11}  unit",
    ]
    for unit in result["units"][:shown]:
        alone = "overflow" if unit["overflow"] else _db(unit["alone_db"])
        cause = f": {unit['cause']}" if unit["cause"] else ""
        within = unit["left_out_ci"]
        noise = f"{'-':>7}" if within is None else f"{within:>7.1%}" if within < MOST_CI else f"{'>999%':>7}"
        left_out = f"{unit['left_out_share']:>9.1%} {noise} {unit['left_out_place'] if _told(unit) else 'tie':>11}"
        lines.append(f"{alone:>10} {left_out}  {unit['name']} ({unit['op']}){cause}")
    lines += [
        f"{entry['left_out']} worst left out: {'overflow' if entry['overflow'] else _db(entry['joint_db'])}"
        for entry in result["tried"]
    ]
    if result["exclude"]:
        lines += ["exclude:", *(f"  - '{name}'" for name in result["exclude"])]
    return "\n".join(lines)


def _told(unit: Mapping[str, Any]) -> bool:
    return measure.is_told(unit["left_out_share"], unit["left_out_ci"])


def _reproducible(result: Mapping[str, Any]) -> str:
    """How well the rankings reproduce themselves, and what follows where one does not."""
    alone, left_out = (result["reproducible"][name] for name in ("alone", "left_out"))
    count = sum(_told(unit) for unit in result["units"])
    text = f"alone {_rho(alone)}, left out {_rho(left_out)} of the {counted(count, 'unit')} that are no tie"
    poor = [
        name for name, rho in (("alone", alone), ("left out", left_out)) if rho is not None and rho < measure.POOR
    ]
    if poor:
        text += f"; the ranking {' and that '.join(poor)} does not reproduce itself: its order is noise in part"
    return text


def not_looked_at(bodies: Mapping[str, int]) -> list[str]:
    """A line about nodes that are in no unit, since they are in bodies; none where there are no bodies."""
    if not bodies:
        return []
    nodes = counted(sum(bodies.values()), "node")
    return [f"{nodes} in the bodies of {', '.join(bodies)} are not looked at: they stay as they are."]


def conclusion(result: Mapping[str, Any]) -> str:
    """What to leave out of the format for its tolerance."""
    leaves_out, tried = result["exclude"], result["tried"]
    begin = f"{result['precision']} with all units: {_db(result['joint_db'])}"
    if leaves_out is None:
        best = max((entry["joint_db"] for entry in tried if entry["joint_db"] is not None), default=None)
        return (
            f"{begin}. No set that was tried meets the format's tolerance (best: {_db(best)}): take another format."
        )
    if not leaves_out:
        return f"{begin}, which meets the format's tolerance: leave nothing out."
    met = min((entry for entry in tried if entry["meets"]), key=lambda entry: int(entry["left_out"]))
    count = counted(met["left_out"], "unit")
    return f"{begin}. Leave out {count}, as listed last: {_db(met['joint_db'])}, which meets the format's tolerance."


def _db(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} dB"


def _rho(value: float | None) -> str:
    return "not told" if value is None else f"{value:.2f}"
