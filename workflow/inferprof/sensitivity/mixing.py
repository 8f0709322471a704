"""A format for each unit: as fast as a roofline says, within a loss that is measured and not only summed up."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inferprof.case import REFERENCE
from inferprof.documents.graph import Node
from inferprof.grouping import grouped
from inferprof.machine.peaks import Peaks
from inferprof.model.operators import bits
from inferprof.plugins import Precision
from inferprof.sensitivity import switches
from inferprof.sensitivity.measure import Array, Switched, db
from inferprof.sensitivity.switches import Unit

TRIES = 12
"""Mixes that are measured at most."""
FLOAT_BITS = 32
"""Of the graph that the nodes' bytes are counted in."""


@dataclass(frozen=True, eq=False)
class Choice:
    """A unit in a format: what it loses alone, and how long it takes."""

    unit: Unit
    format: str
    number: int
    """Of its switch."""
    loss: float
    time_s: float


@dataclass(frozen=True)
class Mix:
    """What was tried: a choice for each unit that is not in the plain format, its time, and its loss as measured."""

    choices: tuple[Choice, ...]
    time_s: float
    predicted: float
    losses: Array

    @property
    def loss(self) -> float:
        """Of all samples."""
        return float(self.losses.mean())


def merged(base: Any, units: Mapping[str, tuple[Any, Sequence[Unit]]]) -> tuple[Any, dict[str, list[Unit]]]:
    """A float graph with the scales of all formats, each under a name of its own, and the units that read these."""
    model = copy.deepcopy(base)
    there = {node.output[0] for node in model.graph.node if node.output}
    taken: dict[str, list[Unit]] = {}
    for name, (graph, of_format) in units.items():
        scales = {weight.name: weight for weight in graph.graph.initializer}
        used: dict[str, None] = {}
        taken[name] = [
            dataclasses.replace(unit, edges=tuple(_renamed(unit.edges, name, used)))
            for unit in of_format
            if all(edge.node in there for edge in unit.edges)
        ]
        for scale in used:
            weight = copy.deepcopy(scales[scale])
            weight.name = f"{name}/{scale}"
            model.graph.initializer.append(weight)
    return model, taken


def _renamed(edges: Iterable[switches.Edge], name: str, used: dict[str, None]) -> Iterator[switches.Edge]:
    """The edges with the scales of their chains under the format's name."""
    for edge in edges:
        chain = [copy.deepcopy(node) for node in edge.chain]
        inside = {"", chain[0].input[0], *(made for node in chain for made in node.output)}
        for node in chain:
            for place, given in enumerate(node.input):
                if given not in inside:
                    used[given] = None
                    node.input[place] = f"{name}/{given}"
        yield dataclasses.replace(edge, chain=tuple(chain))


def time_of(nodes: Iterable[Node], held: Precision, peaks: Peaks) -> float:
    """Seconds of nodes whose operands are held in a format, by a GPU's roofline; `nodes` are those in float32."""
    total = 0.0
    narrow = bits(held.storage) / FLOAT_BITS
    for node in nodes:
        rate = peaks.flops.get(held.roof) or peaks.flops[REFERENCE]
        moved = (node.operands or 0) * narrow + (node.written or 0) / 2
        total += max((node.flops or 0) / rate if node.product else 0, moved / (peaks.bandwidth or math.inf))
    return total


def choices(
    units: Mapping[str, Sequence[Unit]], losses: Mapping[str, Array], times: Mapping[tuple[str, str], float]
) -> list[Choice]:
    """Every unit in every format, numbered as the switches of all of them."""
    every: list[Choice] = []
    for name, of_format in units.items():
        every += [
            Choice(unit, name, len(every) + number, float(losses[name][number]), times[unit.name, name])
            for number, unit in enumerate(of_format)
        ]
    return every


def full_times(
    units: Mapping[str, Sequence[Unit]], times: Mapping[tuple[str, str], float], plain_s: Mapping[str, float]
) -> dict[str, float]:
    """Format → seconds where every unit that has it is in it, the others in the plain format."""
    plain = sum(plain_s.values())
    return {
        name: plain - sum(plain_s[unit.name] - times[unit.name, name] for unit in given)
        for name, given in units.items()
    }


def fastest(every: Sequence[Choice], plain_s: Mapping[str, float], allowed: float) -> tuple[Choice, ...]:
    """The choices of the least time whose losses sum up to `allowed` at most.

    From the fastest of each unit on, the step to a slower one that saves the most loss for its time is taken first.
    """
    of_unit = grouped((choice.unit.name, choice) for choice in every)
    now: dict[str, Choice | None] = {}
    for name, given in of_unit.items():
        first = min(given, key=lambda choice: (choice.time_s, choice.loss))
        now[name] = first if first.time_s <= plain_s[name] else None
    while sum(choice.loss for choice in now.values() if choice) > allowed:
        steps = [step for name, choice in now.items() if choice for step in _steps(choice, of_unit[name], plain_s)]
        _, _, name, to = max(steps, key=lambda step: step[:2])
        now[name] = to
    _fill(now, of_unit, plain_s, allowed)
    return tuple(choice for choice in now.values() if choice)


def _fill(
    now: dict[str, Choice | None],
    of_unit: Mapping[str, Sequence[Choice]],
    plain_s: Mapping[str, float],
    allowed: float,
) -> None:
    """Take what is faster and still fits, the step that saves most time first: the last slower one may leave room."""

    def saved(choice: Choice) -> float:
        held = now[choice.unit.name]
        return (held.time_s if held else plain_s[choice.unit.name]) - choice.time_s

    spare = allowed - sum(choice.loss for choice in now.values() if choice)
    for choice in sorted(itertools.chain(*of_unit.values()), key=saved, reverse=True):
        held = now[choice.unit.name]
        more = choice.loss - (held.loss if held else 0.0)
        if saved(choice) > 0 and more <= spare:
            now[choice.unit.name] = choice
            spare -= more


def _steps(
    now: Choice, given: Sequence[Choice], plain_s: Mapping[str, float]
) -> Iterator[tuple[float, float, str, Choice | None]]:
    """From a unit's choice to others of less loss, the plain format the last: loss saved by time lost, and loss."""
    name = now.unit.name
    for to in [*(choice for choice in given if choice.loss < now.loss), None]:
        saved = now.loss - (to.loss if to else 0.0)
        slower = (to.time_s if to else plain_s[name]) - now.time_s
        yield (saved / slower if slower > 0 else math.inf), saved, name, to


def search(
    switched: Switched, every: Sequence[Choice], plain_s: Mapping[str, float], passes_db: float
) -> tuple[Mix | None, list[Mix]]:
    """The fastest mix that meets a tolerance by its measured loss, and all that were tried, in their order.

    What losses may sum up to is halved between what met the tolerance and what did not: they need not add up.
    """
    wanted = 10 ** (-passes_db / 10)
    low, high = 0.0, max(wanted, sum(choice.loss for choice in every if math.isfinite(choice.loss)))
    allowed, best = wanted, None
    tried = [measured(switched, fastest(every, plain_s, math.inf), plain_s)]
    if tried[0].loss <= wanted:
        return tried[0], tried
    for _ in range(TRIES):
        chosen = fastest(every, plain_s, allowed)
        mix = next((mix for mix in tried if mix.choices == chosen), None)
        if mix is None:
            mix = measured(switched, chosen, plain_s)
            tried.append(mix)
        if mix.loss <= wanted:
            low = allowed
            best = mix if best is None or mix.time_s <= best.time_s else best
        else:
            high = allowed
        if high <= low * 1.05:
            break
        allowed = math.sqrt(low * high) if low else high / 4
    return best, tried


def measured(switched: Switched, chosen: Sequence[Choice], plain_s: Mapping[str, float]) -> Mix:
    """A mix and what it loses on each sample."""
    names = {choice.unit.name for choice in chosen}
    time_s = sum(choice.time_s for choice in chosen) + sum(s for name, s in plain_s.items() if name not in names)
    losses = switched.losses({choice.number for choice in chosen})
    return Mix(tuple(chosen), time_s, sum(choice.loss for choice in chosen), losses)


def front(tried: Sequence[Mix]) -> list[dict[str, Any]]:
    """The mixes that were tried, the fastest first, and whether none was better in both."""
    ordered = sorted(tried, key=lambda mix: (mix.time_s, mix.loss))
    best = math.inf
    rows = []
    for mix in ordered:
        rows.append(
            {
                "time_us": mix.time_s * 1e6,
                "predicted_db": db(mix.predicted),
                "sqnr_db": db(mix.loss),
                "on_front": mix.loss < best,
                "units": {name: len(given) for name, given in by_format(mix.choices).items()},
            }
        )
        best = min(best, mix.loss)
    return rows


def by_format(chosen: Iterable[Choice]) -> dict[str, list[str]]:
    """Format → the names of the nodes of the units in it."""
    formats: dict[str, list[str]] = {}
    for choice in chosen:
        formats.setdefault(choice.format, []).extend(choice.unit.nodes)
    return formats


def interval(losses: Array, seed: int) -> tuple[float | None, float | None]:
    """95 % of the joint SQNR in dB over samples, by the bootstrap; the lower end first."""
    from scipy.stats import bootstrap

    if len(losses) < 2 or not np.isfinite(losses).all() or np.ptp(losses) == 0:
        value = db(float(losses.mean()))
        return value, value
    drawn = bootstrap((losses,), np.mean, random_state=np.random.default_rng(seed), method="percentile")
    return db(float(drawn.confidence_interval.high)), db(float(drawn.confidence_interval.low))
