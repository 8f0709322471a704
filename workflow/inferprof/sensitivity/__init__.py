"""Which node of a graph loses the accuracy in a number format: units with a switch each, tried alone and left out."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from inferprof import progress, registry
from inferprof.case import BATCH, REFERENCE, Shape
from inferprof.errors import UserError, failures_of
from inferprof.model import data, emulation, half_overflow, onnx_file, onnx_graph, onnx_reader, samples, typed_graph
from inferprof.model.model_spec import ModelSpec
from inferprof.plugins import ConvertRequest, Feeds, Precision
from inferprof.sensitivity import causes, measure, switches
from inferprof.sensitivity.measure import Array, Losses, Switched, db
from inferprof.sensitivity.switches import Unit
from inferprof.words import some

STEPS = ("convert", "try each unit", "leave units out", "find causes")
EXPLAINED = 12
"""How many units, worst first, a cause is looked for of."""
SEEN = 4
"""Samples that causes are looked for on."""
TRIES = 8
"""At most so many sets of units are left out to meet the tolerance."""
ADDITIVE_DB = 1.0
"""How far the sum of the losses may be from the joint loss to call them additive."""


More = Callable[[int], Sequence[Feeds]]
"""Further samples, by how many there are."""
FEWEST = 32
"""Samples at least where they are chosen by what the ranking needs."""


HALVES = frozenset(("float16", "bfloat16"))
"""What plain formats are held in that a node can be rounded to by itself."""


def refusal(precision: Precision) -> str | None:
    """Why no node of a format can be left out by itself, or None."""
    if precision.by_node or precision.blocks:
        return None
    allowed = ", ".join(name for name, other in registry.precisions().items() if other.by_node or other.blocks)
    return (
        f"{precision.name} is not made of the fp32 graph node by node, so no node of it can be left out; allowed: "
        f"{allowed}"
    )


@dataclass(frozen=True)
class Prepared:
    """A graph that holds the format of every unit, and the units."""

    model: Any
    units: Sequence[Unit]
    half: bool


def prepare(request: ConvertRequest, precision: Precision, model: Any = None) -> Prepared:
    """The units of a model in a format, which is calibrated once here.

    `model`: its graph in that format, or the float graph that blocks are put into. Raises UserError for a format that
    isn't made of the float graph node by node, and for a graph of which nothing can be in it.
    """
    import onnx

    if reason := refusal(precision):
        raise UserError(reason)
    if emulation.uses_half(onnx_reader.read(request.onnx)):
        raise UserError(
            f"{request.onnx} computes in half precision by itself, and what a node loses is told against float32; "
            "give the model's fp32 graph"
        )
    request = dataclasses.replace(request, options={**precision.options, **request.options})
    if precision.blocks:
        graph, chains = precision.blocks.chains(request, model or _tidied(request))
        return Prepared(graph, switches.block_units(graph, chains), half=False)
    if precision.storage in HALVES:
        number = onnx.TensorProto.DataType.Value(precision.storage.upper())
        graph = _tidied(request)
        return Prepared(graph, _some(switches.rounded_units(graph, number), request, precision), half=True)
    model = model or _quantized(request, precision)
    units = _some(switches.quantized_units(model), request, precision)
    return Prepared(model, units, half=False)


def _some(units: Sequence[Unit], request: ConvertRequest, precision: Precision) -> Sequence[Unit]:
    if not units:
        bodies = onnx_graph.in_bodies(onnx_reader.read(request.onnx).graph)
        inside = f" outside of the bodies of {some([*bodies])}" if bodies else ""
        raise UserError(
            f"{request.spec.name} has no node that can be in {precision.name}, such as a MatMul or Conv in float32"
            f"{inside}; give another graph or number format"
        )
    return units


def _tidied(request: ConvertRequest) -> Any:
    return onnx_file.tidied(onnx_reader.read(request.onnx, external=True))


def _quantized(request: ConvertRequest, precision: Precision) -> Any:
    """The graph in the format, the rest of it in fp32: so that all that differs is the units."""
    options = {**request.options}
    if "high_precision" in precision.options:
        options["high_precision"] = REFERENCE
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "quantized.onnx")
        precision.convert(dataclasses.replace(request, options=options, out=out))
        return onnx_reader.read(out, external=True)


def single_samples(spec: ModelSpec, count: int, seed: int) -> list[Feeds]:
    """Samples one by one, where the model takes a batch of 1."""
    if BATCH not in spec.symbols:
        return [*data.feeds(spec, samples.sample_shape(spec), count, seed)]
    return [*data.feeds(spec, spec.at(Shape(((BATCH, 1),))), count, seed)]


def to_rank(spec: ModelSpec, units: int, count: int | None) -> tuple[list[Feeds], More | None]:
    """The samples that a ranking begins with, and what gives it more where their count is left to it."""
    seed = samples.calibration_seed(spec)
    feeds = single_samples(spec, max(measure.least_samples(units), count or 0), seed)
    if count is not None:
        return feeds, None
    chosen = max(FEWEST, measure.least_samples(units, measure.TRIES))
    feeds = max(feeds, _different(spec, seed, chosen), key=len)
    return feeds, lambda there: _different(spec, seed, 2 * there)[there:]


def _different(spec: ModelSpec, seed: int, count: int) -> list[Feeds]:
    """So many samples, fewer where the data have no more than that: they are dealt out again then."""
    seen: set[tuple[bytes, ...]] = set()
    feeds = single_samples(spec, count, seed)
    for number, sample in enumerate(feeds):
        key = tuple(hashlib.sha256(array.tobytes()).digest() for array in sample.values())
        if key in seen:
            return feeds[:number]
        seen.add(key)
    return feeds


def analyse(request: ConvertRequest, precision: Precision, count: int | None = None) -> dict[str, Any]:
    """The content of .sensitivity.json: the units ranked, with causes, and which to leave out for the tolerance.

    `count`: samples at least; None: as many as it takes until the rankings reproduce themselves, within bounds.
    """
    spec = request.spec
    with progress.task(f"Sensitivity of {spec.name} to {precision.name}", STEPS):
        progress.step("convert")
        prepared = prepare(request, precision)
        feeds, more = to_rank(spec, len(prepared.units), count)
        progress.step("try each unit")
        started = time.monotonic()
        with failures_of("ONNX Runtime"):
            switched = Switched(prepared.model, prepared.units, feeds)
        losses = measure.rank(switched, more)
        ranking_s = time.monotonic() - started
        order = ranked(losses.alone)
        places = {number: place for place, number in enumerate(ranked(losses.left_out), start=1)}
        progress.step("leave units out")
        tried = leave_out(switched, losses, order, precision.tolerance.passes)
        progress.step("find causes")
        worst = order[:EXPLAINED]
        reasons = _causes(prepared, [prepared.units[number] for number in worst], feeds[:SEEN])
    explained = dict(zip(worst, reasons, strict=True))
    return {
        "precision": precision.name,
        "pretrained": spec.pretrained,
        "samples": len(switched.samples),
        "samples_each": losses.samples,
        "left_out_each": losses.left_out_samples,
        "evaluations": _evaluations(losses, tried, switched),
        "seconds": round(ranking_s, 1),
        "joint_db": db(float(losses.joint.mean())),
        "predicted_db": db(float(losses.alone.sum())),
        "additive": additive(losses),
        "in_bodies": onnx_graph.in_bodies(onnx_reader.outline(request.onnx).graph),
        "reproducible": dict(zip(("alone", "left_out"), losses.reproducible, strict=True)),
        "units": [
            {
                "name": prepared.units[number].name,
                "op": prepared.units[number].op,
                "nodes": [*prepared.units[number].nodes],
                "alone_db": db(float(losses.alone[number])),
                "overflow": not math.isfinite(losses.alone[number]),
                "left_out_share": float(losses.without[number]),
                "left_out_ci": None if losses.left_out_ci is None else float(losses.left_out_ci[number]),
                "left_out_place": places[number],
                "cause": explained.get(number),
            }
            for number in order
        ],
        "tried": tried,
        "exclude": exclude(prepared.units, order, tried),
    }


def _evaluations(losses: Losses, tried: Sequence[Any], switched: Switched) -> dict[str, int]:
    """The passes over all samples by what they were for, and how many the ranking may take."""
    return {
        "ranking": losses.passes,
        "allowed": measure.budget(len(switched.units)),
        "leaving_out": len(tried),
        "causes": 1,
        "total": losses.passes + len(tried) + 1,
    }


def ranked(losses: Array) -> list[int]:
    """The units, that of the largest loss first."""
    return [int(number) for number in np.argsort(-losses, kind="stable")]


def additive(losses: Losses) -> bool | None:
    """Whether the losses add up to the joint one; None where one of them is no number, or nothing is lost."""
    predicted, joint = db(float(losses.alone.sum())), db(float(losses.joint.mean()))
    return None if predicted is None or joint is None else abs(predicted - joint) <= ADDITIVE_DB


def leave_out(switched: Switched, losses: Losses, order: Sequence[int], passes_db: float) -> list[dict[str, Any]]:
    """Sets of the worst units that were left out and the joint loss then, up to the smallest that meets a tolerance.

    Halving: how many, of the worst first. A loss that doesn't fall with every unit is no reason to try them all.
    """
    joint = db(float(losses.joint.mean()))
    if joint is not None and joint >= passes_db:
        return []
    low, high = 0, _predicted(losses, order, passes_db)
    tried: list[dict[str, Any]] = []
    while len(tried) < TRIES and low < high:
        left = high if not any(entry["meets"] for entry in tried) else (low + high) // 2
        if left == low:
            break
        loss = float(switched.losses(set(range(len(order))) - {*order[:left]}).mean())
        meets = loss <= 10 ** (-passes_db / 10)
        tried.append({"left_out": left, "joint_db": db(loss), "overflow": not math.isfinite(loss), "meets": meets})
        if meets:
            high = left
        else:
            low, high = left, max(high, min(len(order), 2 * left)) if left == high else high
        if meets and left == low + 1:
            break
    return tried


def _predicted(losses: Losses, order: Sequence[int], passes_db: float) -> int:
    """How many of the worst units have to go for the sum of the others to meet the tolerance, at least 1."""
    rest = np.cumsum(losses.alone[[*order]][::-1])[::-1]
    enough = np.flatnonzero(rest <= 10 ** (-passes_db / 10))
    return max(1, int(enough[0]) if len(enough) else len(order))


def exclude(units: Sequence[Unit], order: Sequence[int], tried: Sequence[Mapping[str, Any]]) -> list[str] | None:
    """The nodes of the smallest set that met the tolerance; none where nothing need be left out; None: no set did."""
    if not tried:
        return []
    enough = [entry["left_out"] for entry in tried if entry["meets"]]
    return [name for number in order[: min(enough)] for name in units[number].nodes] if enough else None


def _causes(prepared: Prepared, worst: Sequence[Unit], feeds: Sequence[Feeds]) -> list[str | None]:
    graph = switches.only(prepared.model, ())
    pieces = {}
    if prepared.half:
        typed = typed_graph.analyse(graph, {})
        names = half_overflow.normalizations(typed, "float32")
        pieces = {node.output[0]: node.name for node in graph.graph.node if (node.name or node.output[0]) in names}
    return causes.of(prepared.model, graph, worst, feeds, pieces=pieces, half=prepared.half)
