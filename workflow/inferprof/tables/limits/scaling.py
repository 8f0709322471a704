"""What more GPUs gain over a sweep of sizes, a model of it, and what the model says of numbers that nobody measured.

A case at m tokens, divided over n GPUs, takes

T(n, m) = T(1, m) / n + a + b · m

The products are divided, and each inference sends the same number of messages, whose sizes grow with the tokens: `a`
is what they take however small they are, `b` what a token adds. Both are fitted to a measured sweep of one n by least
squares of the relative error, and are at least 0. Of another n: what crosses the slowest link grows by the factor of
an all-reduce, 2 (n - 1) / n; `a` by between log2 n, the depth of a tree, and n - 1, the steps of a ring (Thakur et
al., 2005). So a prediction is a range.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from inferprof.case import PARALLEL, Shape
from inferprof.documents import Links
from inferprof.grouping import grouped
from inferprof.tables.records import KEY, Key, Options, but_for, paired_without
from inferprof.tables.trace.collectives import ALL, LEVEL, iterations_of


def message_ns(links: Links, operation: str, size: float) -> float | None:
    """How long an operation takes with messages of so many bytes, between two measured sizes by their logarithms;
    None where it was not measured, and for sizes beyond those that were."""
    own = (links.operations or {}).get(operation)
    sizes = sorted(map(int, own.by_size)) if own else []
    if not own or not sizes[0] <= size <= sizes[-1]:
        return None
    times = [own.by_size[str(each)].ns for each in sizes]
    return float(np.exp(np.interp(np.log(size), np.log(sizes), np.log(times))))


def best_gb_per_s(links: Links, operation: str) -> float | None:
    """The highest bus bandwidth of an operation at any size; None where it was not measured."""
    own = (links.operations or {}).get(operation)
    return max(message.gb_per_s for message in own.by_size.values()) if own else None


FITTED: Final = ("tensor", "sequence")
"""Ways to divide whose cost the model describes."""
LEAST: Final = 3
"""Sizes that two parameters are fitted to: with two nothing is left to say how well they fit."""
TRUSTED: Final = 0.25
"""A model that is further off at some size predicts nothing."""
PREDICTED: Final = (4, 8)
"""Numbers of GPUs that a sweep of fewer is used to predict."""
_SHAPE: Final = KEY.index("shape")


@dataclass(frozen=True)
class Point:
    """A size: what it takes on one GPU and divided, ns. `alone` is the case of the first, `key` of the second."""

    alone: Key
    key: Key
    tokens: int
    alone_ns: float
    divided_ns: float

    @property
    def speed_up(self) -> float:
        """Above 1: it pays."""
        return self.alone_ns / self.divided_ns


@dataclass(frozen=True)
class Messages:
    """What GPUs send each other in an inference of a size, as a tool saw it: operation, how many, bytes of each."""

    tokens: int
    sent: Sequence[tuple[str, float, float]]

    def ns(self, links: Links, tokens: int) -> float | None:
        """What the link was measured to take for as many messages, one behind the other, that have grown with the
        tokens; None where it was not measured with their sizes."""
        total = 0.0
        for operation, count, size in self.sent:
            alone = message_ns(links, operation, size * tokens / self.tokens)
            if alone is None:
                return None
            total += count * alone
        return total


def messages_of(profile: pd.DataFrame, tokens: int) -> Messages | None:
    """The messages of a case, by one tool's rows of the tidy table; None where the tool tells no sizes."""
    rows = profile[profile["level"].eq(LEVEL) & profile["name"].ne(ALL) & profile["metric"].eq("message_total")]
    rows = rows[rows["device"].eq(rows["device"].min()) & rows["value"].gt(0)]
    count = iterations_of(profile)
    each = zip(rows["name"], rows["instances"], rows["value"], strict=True)
    sent = [(str(name), calls / count, total / calls) for name, calls, total in each]
    return Messages(tokens, sent) if sent else None


@dataclass(frozen=True)
class Fit:
    """The parameters for the number of GPUs that they were fitted to; `residual`: the largest relative error."""

    ranks: int
    a_ns: float
    b_ns: float
    residual: float

    def at(self, point: Point) -> float:
        """What the model says of a size, ns."""
        return point.alone_ns / self.ranks + self.a_ns + self.b_ns * point.tokens

    def predicted(self, point: Point, ranks: int) -> tuple[float, float]:
        """The same for another number of GPUs: from, to."""
        volume = ((ranks - 1) / ranks) / ((self.ranks - 1) / self.ranks)
        steps = math.log2(ranks) / math.log2(self.ranks), (ranks - 1) / (self.ranks - 1)
        rest = point.alone_ns / ranks + self.b_ns * volume * point.tokens
        return rest + min(steps) * self.a_ns, rest + max(steps) * self.a_ns


@dataclass(frozen=True)
class Sweep:
    """One case of one model at several sizes, divided in one way; `alone` is the variant of one GPU beside it."""

    kind: str
    ranks: int
    alone: str
    family: tuple[Any, ...]
    """What sweeps of other numbers of GPUs have in common with this one."""
    points: Sequence[Point]

    @property
    def beyond(self) -> list[Point]:
        """The sizes at which it is more times as fast as it has GPUs."""
        return [point for point in self.points if point.speed_up > self.ranks]

    def by_links(self, point: Point, messages: Messages | None, links: Links | None) -> float | None:
        """What a size should take, ns, by what the link was measured to do with its messages: nothing is fitted."""
        if self.kind not in FITTED or messages is None or links is None or links.ranks != self.ranks:
            return None
        sending = messages.ns(links, point.tokens)
        return None if sending is None else point.alone_ns / self.ranks + sending

    def fit(self) -> Fit | None:
        """The model of it; None where it does not describe this way, or has too few sizes."""
        if self.kind not in FITTED or self.ranks < 2 or len({point.tokens for point in self.points}) < LEAST:
            return None
        from scipy.optimize import nnls

        took = np.array([point.divided_ns for point in self.points])
        rest = took - np.array([point.alone_ns for point in self.points]) / self.ranks
        terms = np.array([[1.0, point.tokens] for point in self.points])
        # Tokens of thousands beside ones: scaled alike, so that the solver's tolerance is of both.
        scale = np.abs(terms / took[:, None]).max(axis=0)
        (a, b), _ = nnls(terms / took[:, None] / scale, rest / took)
        fit = Fit(self.ranks, float(a / scale[0]), float(b / scale[1]), 0.0)
        errors = [abs(fit.at(point) / point.divided_ns - 1) for point in self.points]
        return Fit(fit.ranks, fit.a_ns, fit.b_ns, max(errors))

    def pays_from(self) -> float:
        """From how many tokens on it is faster than one GPU at all measured sizes, between two of them by their
        logarithms; inf where it is not at the largest."""
        points = sorted(self.points, key=lambda point: point.tokens)
        slower = [place for place, point in enumerate(points) if point.speed_up <= 1]
        if not slower:
            return float(points[0].tokens)
        if slower[-1] == len(points) - 1:
            return math.inf
        below, above = points[slower[-1]], points[slower[-1] + 1]
        low, high = math.log(below.speed_up), math.log(above.speed_up)
        share = -low / (high - low)
        return math.exp(math.log(below.tokens) + share * math.log(above.tokens / below.tokens))


def sweeps(options: Options, medians: Mapping[Key, float]) -> list[Sweep]:
    """The sweeps of a study: KEY → options, and → median ns. A case without one like it on one GPU is left out.

    Several variants of one GPU may be beside a case, equal in all options: the first counts.
    """
    points_of: defaultdict[tuple[Any, ...], list[Point]] = defaultdict(list)
    for key, alone in paired_without(PARALLEL, options).items():
        if key not in medians or alone[0] not in medians:
            continue
        ((kind, ranks),) = options[key][PARALLEL].items()
        names = dict(zip(KEY, key, strict=True))
        family = (*(names[name] for name in ("machine", "model", "precision", "backend")), kind)
        place = (
            kind,
            ranks,
            names["variant"],
            alone[0][KEY.index("variant")],
            family,
            but_for(PARALLEL, options[key]),
        )
        points_of[place].append(Point(alone[0], key, tokens(key[_SHAPE]), medians[alone[0]], medians[key]))
    return [
        Sweep(kind, ranks, alone, (*family, rest), sorted(points, key=lambda point: (point.tokens, point.key)))
        for (kind, ranks, _, alone, family, rest), points in points_of.items()
    ]


def tokens(shape: str) -> int:
    """What the sizes of a shape multiply to: batch times sequence."""
    return math.prod(Shape.parse(shape).as_dict().values())


@dataclass(frozen=True)
class Prediction:
    """What the sweep of fewer GPUs says of a size with more; `measured_ns` where that was measured too."""

    of: Fit
    kind: str
    ranks: int
    point: Point
    low_ns: float
    high_ns: float
    measured_ns: float | None

    @property
    def error(self) -> float | None:
        """How far the measured time is outside of the range, relative to it; 0 inside."""
        if self.measured_ns is None:
            return None
        nearest = min(max(self.measured_ns, self.low_ns), self.high_ns)
        return nearest / self.measured_ns - 1


def predictions(every: Sequence[Sweep]) -> list[Prediction]:
    """What the sweep of the fewest GPUs of each family says of PREDICTED numbers, if its model is TRUSTED."""
    made = []
    by_family = grouped((sweep.family, sweep) for sweep in every)
    for family in by_family.values():
        first = min(family, key=lambda sweep: sweep.ranks)
        fit = first.fit()
        if fit is None or fit.residual > TRUSTED:
            continue
        measured = {(sweep.ranks, p.key[_SHAPE]): p.divided_ns for sweep in family for p in sweep.points}
        for ranks in PREDICTED:
            for point in first.points if ranks > first.ranks else ():
                low, high = fit.predicted(point, ranks)
                same = measured.get((ranks, point.key[_SHAPE]))
                made.append(Prediction(fit, first.kind, ranks, point, low, high, same))
    return made
