"""A mix of formats: for each product the fastest with which the outputs stay within a tolerance; else a plain one."""

from __future__ import annotations

import dataclasses
import itertools
import math
import tempfile
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import numpy as np

from inferprof import progress, registry, sensitivity
from inferprof.allowed import Allowed, one_of
from inferprof.case import REFERENCE
from inferprof.documents.graph import Node
from inferprof.errors import UserError, unknown
from inferprof.files import write_text
from inferprof.machine import peaks as known_peaks
from inferprof.machine.peaks import Peaks
from inferprof.model import accuracy, cost, onnx_graph, samples, typed_graph
from inferprof.model.model_spec import input_shapes
from inferprof.plugins import ConvertRequest, Precision, Tolerance
from inferprof.precisions import autocast, conversion, node_times, outliers, ptq
from inferprof.sensitivity import Prepared, measure, mixing, switches
from inferprof.sensitivity.mixing import Choice
from inferprof.sensitivity.switches import Unit

OPTIONS: dict[str, Any] = {
    "formats": ["int8", "fp16"],
    "tolerance": 15.0,
    "calibration": "max",
    "samples": 32,
    "outliers": 0.0,
    "gpu": "H100 SXM5",
    "times": "",
    "nodes": [],
}
"""`times`: a machine's folder of results, whose captures tell the times of nodes that were measured in every format
of the mix; of the others, and without it, the roofline of `gpu`, a row of peaks.csv, does. `nodes`: what was chosen
once (`int8 NAME`, patterns too), so that nothing is searched."""
HELD_OUT = 32
"""Samples that the mix is proved on: of the seed that accuracy is judged by, none of those that it was chosen by."""


@dataclasses.dataclass(frozen=True)
class Asked:
    """The options, checked."""

    quantized: tuple[Precision, ...]
    plain: Precision
    tolerance: float
    peaks: Peaks
    nodes: tuple[tuple[str, str], ...]


def asked(request: ConvertRequest) -> Asked:
    """What is to be mixed. Raises UserError for nodes in formats that are not."""
    given = request.options
    quantized, plain = _formats(given["formats"])
    gpus = {item.gpu: item for item in known_peaks.every()}
    nodes = _nodes(given["nodes"], quantized)
    return Asked(quantized, plain, float(str(given["tolerance"])), gpus[str(given["gpu"])], nodes)


def _formats(given: Any) -> tuple[tuple[Precision, ...], Precision]:
    """The quantized formats of a mix, and the plain one. Raises ValueError where they can't be mixed."""
    formats = registry.precisions()
    names = given if isinstance(given, list) else [given]
    chosen = [formats[name] for name in names if name in formats]
    quantized = tuple(item for item in chosen if item.quantized)
    plain = [item for item in chosen if not item.quantized]
    separable = all(sensitivity.refusal(item) is None and item is not MIXED for item in quantized)
    in_fp16 = all(item.blocks is None for item in quantized) or [item.name for item in plain] == ["fp16"]
    if len(chosen) < len(names) or not quantized or len(plain) > 1 or not (separable and in_fp16):
        raise ValueError(given)
    return quantized, plain[0] if plain else formats[REFERENCE]


def _are_formats(given: Any) -> bool:
    try:
        return bool(_formats(given))
    except (ValueError, TypeError):
        return False


ALLOWS: Final[Mapping[str, Allowed]] = {
    "formats": Allowed(
        _are_formats,
        "a list of formats such as [int8, fp16]: one or more whose nodes can be left out one by one (int8, fp8, and "
        "with fp16 those in blocks), and at most one that is not quantized",
    ),
    "tolerance": Allowed(lambda given: type(given) in (int, float) and math.isfinite(given), "an SQNR in dB"),
    "calibration": ptq.ALLOWS["calibration"],
    **conversion.SAMPLES,
    **outliers.ALLOWS,
    "gpu": one_of(*(item.gpu for item in known_peaks.every())),
    "times": Allowed(lambda given: isinstance(given, str), "a machine's folder of results"),
    "nodes": Allowed(
        lambda given: isinstance(given, list) and all(isinstance(node, str) for node in given),
        "a list of a format and a node each, as in `int8 NAME`",
    ),
}


def _nodes(given: Any, quantized: Sequence[Precision]) -> tuple[tuple[str, str], ...]:
    """(format, node or pattern) of what was chosen before."""
    nodes = tuple((name, pattern) for name, _, pattern in (node.partition(" ") for node in given))
    names = [item.name for item in quantized]
    if foreign := [name for name, _ in nodes if name not in names]:
        raise unknown("formats of option nodes:", foreign, names)
    return nodes


def convert(request: ConvertRequest) -> dict[str, Any]:
    """Write the mixed graph, and beside it, in YAML, what was chosen. Raises UserError where nothing meets it."""
    wanted = asked(request)
    with tempfile.TemporaryDirectory() as folder:
        graph, searched = _mixed(outliers.apart(request, Path(folder)), wanted)
    conversion.save(graph, request.out)
    return conversion.facts(
        f"a mix of {', '.join(item.name for item in wanted.quantized)} by node, the rest in {wanted.plain.name}",
        **searched,
        held_out=held_out(request),
    )


def _mixed(request: ConvertRequest, wanted: Asked) -> tuple[Any, dict[str, Any]]:
    """The mixed graph, and the facts of the search for it."""
    base, prepared = _prepared(request, wanted)
    model, units = mixing.merged(base, {name: (item.model, item.units) for name, item in prepared.items()})
    progress.step("convert")
    searched: dict[str, Any] = {}
    if wanted.nodes:
        _fit(wanted.nodes, units)
        chosen = {name: [unit for unit in given if _kept(unit, name, wanted.nodes)] for name, given in units.items()}
    else:
        chosen, searched = _search(request, wanted, base, model, units)
    blocks = {item.name: item for item in wanted.quantized if item.blocks}
    scaled = [unit for name, given in chosen.items() if name not in blocks for unit in given]
    graph = autocast.rest(switches.assembled(model, scaled), wanted.plain.name, request.onnx)
    for name, item in blocks.items():
        if item.blocks and (nodes := {node for unit in chosen[name] for node in unit.nodes}):
            graph = item.blocks.write(_of_format(request, item), graph, nodes)
    return graph, searched


def _prepared(request: ConvertRequest, wanted: Asked) -> tuple[Any, dict[str, Prepared]]:
    """The float graph that all formats are of, and their units: blocks are put around what the others leave of it."""
    scaled, blocks = ([item for item in wanted.quantized if bool(item.blocks) == given] for given in (False, True))
    prepared = {item.name: sensitivity.prepare(_of_format(request, item), item) for item in scaled}
    newest = max((item.model for item in prepared.values()), key=onnx_graph.opset, default=None)
    base = None if newest is None else switches.only(newest, ())
    for item in blocks:
        prepared[item.name] = sensitivity.prepare(_of_format(request, item), item, base)
        base = prepared[item.name].model
    return switches.only(base, ()), prepared


def _of_format(request: ConvertRequest, item: Precision) -> ConvertRequest:
    """What is asked of one of the formats; outliers are apart by now."""
    options = {name: value for name, value in request.options.items() if name in item.options and name != "outliers"}
    return dataclasses.replace(request, options={**item.options, **options})


def _fit(nodes: Sequence[tuple[str, str]], units: Mapping[str, Sequence[Unit]]) -> None:
    """Raises UserError for what fits no node that can be in its format."""
    for name, pattern in nodes:
        if not any(fnmatchcase(node, pattern) for unit in units[name] for node in unit.nodes):
            raise unknown(f"nodes of {name}:", [pattern], [node for unit in units[name] for node in unit.nodes])


def _kept(unit: Unit, name: str, nodes: Sequence[tuple[str, str]]) -> bool:
    """Whether the first of the patterns that fit a unit gives it this format."""
    first = next((format_ for format_, pattern in nodes if any(fnmatchcase(n, pattern) for n in unit.nodes)), None)
    return first == name


def _search(
    request: ConvertRequest, wanted: Asked, base: Any, model: Any, units: Mapping[str, Sequence[Unit]]
) -> tuple[dict[str, list[Unit]], dict[str, Any]]:
    """Format → the units of the fastest mix that meets the tolerance, and the facts of the search."""
    times, by = _times(request, wanted, base, units)
    plain_s = {name: seconds for (name, format_), seconds in times.items() if format_ == wanted.plain.name}
    faster = {
        name: of_format
        for name, given in units.items()
        if (of_format := [unit for unit in given if times[unit.name, name] <= plain_s[unit.name]])
    }
    if not faster:
        raise UserError(
            f"option formats: no node of {request.spec.name} is faster in {', '.join(units)} than in "
            f"{wanted.plain.name}, by {by}: use {wanted.plain.name}"
        )
    count = max(
        int(str(request.options["samples"])), *(measure.least_samples(len(given)) for given in faster.values())
    )
    feeds = sensitivity.single_samples(request.spec, count, samples.calibration_seed(request.spec))
    losses, ranking = {}, 0
    for name, given in faster.items():
        single = measure.Switched(model, given, feeds)
        losses[name] = measure.alone(single)
        ranking += single.passes
    every = mixing.choices(faster, losses, times)
    switched = measure.Switched(model, [choice.unit for choice in every], feeds)
    best, tried = mixing.search(switched, every, plain_s, wanted.tolerance)
    if best is None or not best.choices:
        raise UserError(_unmet(wanted, tried))
    write_text(request.out.with_suffix(".yaml"), as_yaml(best.choices, request, wanted, by))
    return {name: [choice.unit for choice in best.choices if choice.format == name] for name in units}, {
        "chosen": mixing.by_format(best.choices),
        "front": mixing.front(tried),
        "time_us": best.time_s * 1e6,
        "full_us": {name: full * 1e6 for name, full in mixing.full_times(units, times, plain_s).items()},
        "times_by": by,
        "evaluations": {"ranking": ranking, "mixes": len(tried), "total": ranking + switched.passes},
        "samples_of_choice": count,
    }


def _unmet(wanted: Asked, tried: Sequence[mixing.Mix]) -> str:
    """That nothing quantized meets the tolerance, and how near it came."""
    closest = min((mix for mix in tried if mix.choices), key=lambda mix: mix.loss)
    nodes = sum(map(len, mixing.by_format(closest.choices).values()))
    near = measure.db(closest.loss)
    names = ", ".join(item.name for item in wanted.quantized)
    return (
        f"option tolerance: no mix of {names} meets {wanted.tolerance:g} dB; the closest tried, of {nodes} quantized "
        f"nodes, has {'no finite outputs' if near is None else f'{near:.1f} dB'}: give less, or more formats"
    )


def as_yaml(chosen: Sequence[Choice], request: ConvertRequest, wanted: Asked, by: str) -> str:
    """What was chosen as an entry of `precisions:`, to be read, edited and kept."""
    import yaml

    kept = {name: value for name, value in request.options.items() if name != "nodes"}
    nodes = [f"{name} {node}" for name, given in mixing.by_format(chosen).items() for node in given]
    comment = f"# Chosen for {request.spec.name} by {by}; what is not listed: "
    entry = yaml.safe_dump([{"name": MIXED.name, **kept, "nodes": nodes}], sort_keys=False, width=1000)
    return f"{comment}{wanted.plain.name}.\n{entry}"


def _times(
    request: ConvertRequest, wanted: Asked, base: Any, units: Mapping[str, Sequence[Unit]]
) -> tuple[dict[tuple[str, str], float], str]:
    """(unit, format) → seconds, of the plain format too; and what tells them."""
    times, by = _by_roofline(request, wanted, base, units), f"roofline of {wanted.peaks.gpu}"
    if not (folder := str(request.options["times"])):
        return times, by
    plain = wanted.plain.name
    measured = node_times.of_formats(Path(folder), request.spec.name, (*units, plain))
    by_capture = node_times.of_units(measured, units, plain)
    count, every = (len({name for name, _ in part}) for part in (by_capture, times))
    return times | by_capture, f"captures of {Path(folder).name} for {count} of {every} units, else {by}"


def _by_roofline(
    request: ConvertRequest, wanted: Asked, base: Any, units: Mapping[str, Sequence[Unit]]
) -> dict[tuple[str, str], float]:
    """(unit, format) → seconds by the roofline, of the plain format too."""
    import msgspec

    shape = samples.sample_shape(request.spec)
    graph = typed_graph.analyse(base, shape.as_dict(), input_shapes(request.spec, shape))
    nodes = {node["name"]: node for node in cost.cost_of(base, graph)["nodes"]}
    typed = {name: msgspec.convert(node, Node) for name, node in nodes.items()}
    times: dict[tuple[str, str], float] = {}
    for unit in itertools.chain.from_iterable(units.values()):
        of_unit = [typed[name] for name in unit.nodes if name in typed]
        times |= {
            (unit.name, held.name): mixing.time_of(of_unit, held, wanted.peaks)
            for held in (*wanted.quantized, wanted.plain)
        }
    return times


def held_out(request: ConvertRequest) -> dict[str, Any]:
    """The SQNR of the written graph on samples that it was not chosen by, with 95 % of it over these samples."""
    feeds = sensitivity.single_samples(request.spec, HELD_OUT, 0)
    try:
        written, given = (accuracy.run_graph(graph, feeds)[0] for graph in (request.out, request.onnx))
    except accuracy.NotMeasured as error:
        return {"not_measured": str(error)}
    usual = {name: float(np.mean([measure.power(outputs[name]) for outputs in given])) for name in given[0]}
    losses = [
        max(measure.ratio(mine[name], theirs[name], measure.power(theirs[name]) or usual[name]) for name in theirs)
        for mine, theirs in zip(written, given, strict=True)
    ]
    low, high = mixing.interval(np.array(losses), 0)
    return {"samples": HELD_OUT, "sqnr_db": measure.db(sum(losses) / len(losses)), "interval_db": [low, high]}


MIXED = Precision(
    name="mixed",
    title="Mixed",
    source="onnx",
    made_by="ModelOpt PTQ on real inputs, a format for each node",
    convert=convert,
    tolerance=Tolerance(
        passes=15.0, warns=8.0, reason="as INT8's; `tolerance` of the precision says what the mix was chosen for"
    ),
    storage="int8",
    computes="int8",
    computes_too=("fp8", "mxfp8", "fp4"),
    roof="int8",
    quantized=True,
    colour="#882255",
    order=55,
    options=OPTIONS,
    allows=ALLOWS,
    needs_compute_capability=(7, 5),
)
