"""What takes time on two sides, brought together: by shared nodes, by name, by kind of work, by position.

Every piece of either side is in exactly one group, so that the differences of the groups add up to the difference.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

How = Literal["node", "place", "name", "kind", "position", "whole"]
MOST_IN_ORDER: Final = 5_000
"""Pieces of a side whose order is looked at; beyond, those of a name are one piece."""
MOST_IN_A_GAP: Final = 0.25
"""Ours: of a side's time, what may stand between two neighbours that are the same on both sides and count as one."""


LEAST_NAMED: Final = 0.7
"""Ours: of the numbered nodes of the side with fewer, what the other must have for the numbers to be of one graph."""
UNKNOWN: Final = "other"
"""The kind of work of what nothing tells the kind."""
_NUMBERED: Final = re.compile(r"[A-Za-z]+_\d+")


@dataclass(frozen=True)
class Piece:
    """Something that takes time: a layer, a launch of a kernel, a node. keys: of what it does, such as the ONNX nodes
    of a layer; kind: what work it is; place: the range or module that it is in; formats, shape: of what it writes."""

    name: str
    ns: float
    kind: str
    keys: frozenset[str] = frozenset()
    place: str = ""
    formats: str = ""
    shape: str = ""
    converts: bool = False


_Step = tuple[How, Callable[[Piece], object]]


@dataclass(frozen=True)
class Group:
    """Pieces of two sides that do the same; one side may have none. how: None where nothing is like it."""

    a: tuple[Piece, ...]
    b: tuple[Piece, ...]
    how: How | None = None

    @property
    def ns(self) -> tuple[float, float]:
        """What it takes on each side."""
        return sum(piece.ns for piece in self.a), sum(piece.ns for piece in self.b)

    @property
    def change(self) -> float:
        """How much longer it takes on the second side, ns."""
        return self.ns[1] - self.ns[0]

    @property
    def formats(self) -> tuple[str, str]:
        """What each side writes; empty where that is not told."""
        first, second = (sorted({piece.formats for piece in side} - {""}) for side in (self.a, self.b))
        return ", ".join(first), ", ".join(second)

    @property
    def converts(self) -> bool:
        """Whether it computes nothing."""
        return all(piece.converts for piece in (*self.a, *self.b))


def align(a: Sequence[Piece], b: Sequence[Piece]) -> list[Group]:
    """The groups, of which every piece is in one."""
    groups: list[Group] = []
    if _named_alike(a, b):
        groups, a, b = _connected(a, b)
    placed, a, b = _placed(a, b)
    return [*groups, *placed, *_in_order(_bounded(a), _bounded(b))]


def share(groups: Sequence[Group]) -> float:
    """Of both sides' time, what is in groups with both; conversions that one side alone has count on neither."""
    counted = [group for group in groups if group.how or not group.converts]
    whole = sum(sum(group.ns) for group in counted)
    return sum(sum(group.ns) for group in counted if group.how) / whole if whole else 0.0


def _named_alike(a: Sequence[Piece], b: Sequence[Piece]) -> bool:
    """Whether the keys of both name the same things. Exporters number nodes, and another graph of the model, as one
    with quantizers, has other numbers: then `Conv_10` is one node here and another one there."""
    numbered = [_numbered(side) for side in (a, b)]
    fewest = min(map(len, numbered))
    return not fewest or len(numbered[0] & numbered[1]) >= LEAST_NAMED * fewest


def _numbered(side: Sequence[Piece]) -> set[str]:
    return {key for piece in side if not piece.converts for key in piece.keys if _NUMBERED.fullmatch(key)}


def _connected(a: Sequence[Piece], b: Sequence[Piece]) -> tuple[list[Group], list[Piece], list[Piece]]:
    """Connected components of shared keys that both sides have a part in, and what is left of each side."""
    root: dict[str, str] = {}

    def top(key: str) -> str:
        while root.setdefault(key, key) != key:
            root[key] = key = root[root[key]]
        return key

    for piece in (*a, *b):
        first, *others = sorted(piece.keys) or [""]
        for other in others:
            root[top(other)] = top(first)
    sides: dict[str, tuple[list[Piece], list[Piece]]] = {}
    for number, side in enumerate((a, b)):
        for piece in side:
            if piece.keys:
                sides.setdefault(top(min(piece.keys)), ([], []))[number].append(piece)
    both = {key for key, (first, second) in sides.items() if first and second}
    groups = [Group(tuple(sides[key][0]), tuple(sides[key][1]), "node") for key in sides if key in both]
    left = [[p for p in side if not p.keys or top(min(p.keys)) not in both] for side in (a, b)]
    return groups, left[0], left[1]


def _placed(a: Sequence[Piece], b: Sequence[Piece]) -> tuple[list[Group], list[Piece], list[Piece]]:
    """Pieces in ranges of the same name, in each in order; and what is in no such range."""
    shared = {piece.place for piece in a} & {piece.place for piece in b} - {""}
    groups = []
    for place in sorted(shared):
        inside = [[piece for piece in side if piece.place == place] for side in (a, b)]
        own = list(_in_order(_bounded(inside[0]), _bounded(inside[1])))
        groups += [group for group in own if group.how]
        apart = [group for group in own if not group.how]
        left = Group(tuple(p for g in apart for p in g.a), tuple(p for g in apart for p in g.b), "place")
        # What a range does otherwise on either side is still the work of this range.
        groups += [left] if left.a and left.b else apart
    rest = [[piece for piece in side if piece.place not in shared] for side in (a, b)]
    return groups, rest[0], rest[1]


def _bounded(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces, those of a name as one where there are too many."""
    if len(pieces) <= MOST_IN_ORDER:
        return list(pieces)
    summed: dict[str, float] = {}
    for piece in pieces:
        summed[piece.name] = summed.get(piece.name, 0.0) + piece.ns
    first = {piece.name: piece for piece in reversed(pieces)}
    return [replace(first[name], ns=ns) for name, ns in summed.items()]


def _in_order(a: Sequence[Piece], b: Sequence[Piece]) -> Iterator[Group]:
    """Those that compute, then those that only convert, which stand between them on one side and not on the other."""
    for converts in (False, True):
        own = [[piece for piece in side if piece.converts == converts] for side in (a, b)]
        whole = sum(piece.ns for side in own for piece in side)
        yield from _by_steps(own[0], own[1], _STEPS, 0.0 if converts else MOST_IN_A_GAP * whole)


def _by_steps(a: Sequence[Piece], b: Sequence[Piece], steps: Sequence[_Step], most: float) -> Iterator[Group]:
    """Pieces that agree in the first step's words in the same order; between those, in the next step's; then what
    stands between the same two, up to `most` ns."""
    if not steps:
        if a and b and sum(piece.ns for piece in (*a, *b)) <= most:
            yield Group(tuple(a), tuple(b), "position")
        else:
            yield from (Group((piece,), ()) for piece in a)
            yield from (Group((), (piece,)) for piece in b)
        return
    (how, words), *others = steps
    matcher = difflib.SequenceMatcher(None, [words(p) for p in a], [words(p) for p in b], autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            yield from (Group((x,), (y,), how) for x, y in zip(a[i1:i2], b[j1:j2], strict=True))
        else:
            yield from _by_steps(a[i1:i2], b[j1:j2], others, most)


def _kind(piece: Piece) -> str:
    """Its kind; its name where nothing tells the kind."""
    return piece.name if piece.kind == UNKNOWN else piece.kind


_STEPS: Final[tuple[_Step, ...]] = (
    ("name", lambda piece: piece.name),
    ("kind", lambda piece: (_kind(piece), piece.shape)),
    ("kind", _kind),
)
