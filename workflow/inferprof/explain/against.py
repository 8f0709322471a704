"""Two captures of one work: where the difference of their times comes from, in groups that add up to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inferprof.diagnosis.kernel_time import clipped, short
from inferprof.diagnosis.times import percent
from inferprof.errors import UserError
from inferprof.explain.foreign import Foreign
from inferprof.explain.sides import GRAPH, Side, as_wholes, basis
from inferprof.tables import aligned
from inferprof.tables.aligned import Group
from inferprof.tables.nodes import graph_nodes
from inferprof.tables.trace.timeline import PATH_SEPARATOR
from inferprof.words import counted

LEAST_ALIGNED: Final = 0.5
"""Ours: of the time of both, what must be aligned for them to be of one model."""
FIRST: Final = ("GPU", "TensorRT", "version", "traced by", "clock", "CUDA Graph", "CUDA graph", "Data transfers")
"""Settings that explain most, before all others."""


@dataclass(frozen=True)
class Difference:
    """Two sides, and what brings them together. rest: what is not in pieces, ns by name of both sides."""

    basis: str
    a: Side
    b: Side
    groups: Sequence[Group]
    rest: Mapping[str, tuple[float, float]]
    settings: Mapping[str, tuple[str, str]]

    @property
    def change(self) -> float:
        """How much longer the second takes, ns: the sum of what groups and rest change by."""
        return self.b.total - self.a.total


def compare(a: Foreign, b: Foreign, model: Path | None = None) -> Difference:
    """Where the difference of b and a comes from. Raises UserError for what can't be compared."""
    graph = {node.name: node for node in graph_nodes.of_file(model)} if model else {}
    for case in (a, b):
        if case.failure:
            raise UserError(f"{', '.join(case.names)} has nothing to compare: {case.failure}")
    bases = basis(a, graph), basis(b, graph)
    common = next((name for name in bases[0] if name in bases[1]), None)
    if common is None:
        sides = list(zip((a, b), bases, strict=True))
        has = [f"{', '.join(case.names)} tells {', '.join(of) or 'no times'}" for case, of in sides]
        untold = [lack.command for case, of in sides if not of for lack in case.lacks]
        raise UserError(f"{'; '.join(has)}: {next(iter(untold), 'capture both with one tool')}")
    first, second = as_wholes(bases[0][common](), bases[1][common]())
    settings = _settings(first, second)
    _require_one_work(first, second, settings)
    groups = _groups(first, second)
    if groups and (share := aligned.share(groups)) < LEAST_ALIGNED:
        raise UserError(
            f"only {percent(share)} of the time of {common} is in both {', '.join(a.names)} and "
            f"{', '.join(b.names)}: they are of two models, or too different"
        )
    names = dict.fromkeys((*first.rest, *second.rest))
    rest = {name: (first.rest.get(name, 0.0), second.rest.get(name, 0.0)) for name in names}
    return Difference(common, first, second, groups, rest, settings)


def _groups(a: Side, b: Side) -> list[Group]:
    """A graph that was traced as a whole is all the kernels of the other side."""
    whole = [bool(side.pieces) and all(piece.kind == GRAPH for piece in side.pieces) for side in (a, b)]
    if whole[0] != whole[1]:
        return [Group(tuple(a.pieces), tuple(b.pieces), "whole")]
    return aligned.align(a.pieces, b.pieces)


def _settings(a: Side, b: Side) -> dict[str, tuple[str, str]]:
    """What both tell and does not agree, the most telling first."""
    of_a, of_b = ({**_of_captures(side.case), **side.settings} for side in (a, b))
    differ = {name: (of_a[name], of_b[name]) for name in of_a if name in of_b and of_a[name] != of_b[name]}
    order = sorted(differ, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    return {name: differ[name] for name in order}


def _of_captures(case: Foreign) -> dict[str, str]:
    return {name: value for capture in reversed(case.captures) for name, value in capture.settings.items()}


def _require_one_work(a: Side, b: Side, settings: Mapping[str, tuple[str, str]]) -> None:
    """Raise UserError for sides of which no difference says anything."""
    names = ", ".join(a.case.names), ", ".join(b.case.names)
    if "traced by" in settings:
        tools = " and ".join(settings["traced by"])
        raise UserError(f"{names[0]} and {names[1]} are of {tools}, whose own costs differ: capture both with one")
    if "shapes" in settings:
        raise UserError(
            f"{names[0]} and {names[1]} are of inputs of {' and '.join(settings['shapes'])}: not one work"
        )
    if a.shapes and b.shapes and len(a.shapes) == len(b.shapes) and a.shapes != b.shapes:
        shapes = [" ".join("x".join(map(str, dims)) for dims in side.shapes or ()) for side in (a, b)]
        raise UserError(f"{names[0]} and {names[1]} are of inputs of {shapes[0]} and {shapes[1]}: not one work")
    if a.of != b.of and not a.pieces and not b.pieces:
        raise UserError(
            f"{names[0]} tells {a.of}, {names[1]} {b.of}: capture both with one tool, with the same switches"
        )
    if a.of != b.of and "whole capture" in a.of + b.of:
        raise UserError(
            f"{names[0]} is of {a.of}, {names[1]} of {b.of}: name what repeats in both with --iteration RANGE"
        )
    if not a.total or not b.total:
        raise UserError(f"{names[0] if not a.total else names[1]} has no time in {a.of}: there is nothing to compare")


def title(difference: Difference) -> str:
    """`a.sqlite against b.sqlite`."""
    return " against ".join(", ".join(side.case.names) for side in (difference.a, difference.b))


def lines(difference: Difference) -> list[tuple[str, float, float]]:
    """What, and its ns on either side: kernels by kind of work or layers one by one, then the rest, all that there
    is."""
    summed: dict[str, list[float]] = {}
    for group in difference.groups:
        entry = summed.setdefault(label(group), [0.0, 0.0])
        entry[0], entry[1] = entry[0] + group.ns[0], entry[1] + group.ns[1]
    return [
        *((name, was, now) for name, (was, now) in summed.items()),
        *((name, was, now) for name, (was, now) in difference.rest.items()),
    ]


def label(group: Group) -> str:
    """What a group is called: what both sides have in common, and their kind of work."""
    pieces = (*group.a, *group.b)
    shared = (
        sorted(frozenset.union(*(p.keys for p in group.a)) & frozenset.union(*(p.keys for p in group.b)))
        if (group.a and group.b and group.how == "node")
        else []
    )
    names = list(dict.fromkeys(short(piece.name) for piece in pieces))
    if shared and not pieces[0].converts:
        named = shared[0] if len(shared) == 1 else f"{shared[0]} … {shared[-1]} ({counted(len(shared), 'node')})"
    elif len(names) == 1:
        named = names[0]
    elif len(group.a) > 1 or len(group.b) > 1:
        named = f"{len(group.a)} against {len(group.b)}: {names[0]} …"
    else:
        named = " → ".join(names)
    where = f" in {pieces[0].place.rpartition(PATH_SEPARATOR)[2]}" if pieces[0].place else ""
    return f"{pieces[0].kind}: {clipped(named) if not shared else named}{where}"
