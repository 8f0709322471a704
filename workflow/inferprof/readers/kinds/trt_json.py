"""TensorRT's JSON: layers, their times and those of inferences, and the metadata that TREx makes of a log."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from inferprof.errors import UserError
from inferprof.findings import Answer, Bottleneck, Finding, Gain, Total
from inferprof.readers import trtexec_bound
from inferprof.readers.kind import Capture, Head, Kind, Lack
from inferprof.readers.trtexec_log import TrtexecRun
from inferprof.tables.nodes.trt_engine import Layer, LayerTime
from inferprof.words import counted, ms

TOOL: Final = "trt_layers"
_TRT_JSON: Final = re.compile(
    r'\{\s*"Layers"\s*:|\[\s*\{\s*"count"\s*:|\[\s*\{[^{}\[\]]*"(?:startEnqMs|startInMs|averageMs)"\s*:|'
    r'(?:[{,]\s*"(?:[^"\\]|\\.)*"\s*:\s*\[[\d.,\se+-]+\]\s*){2}'
)
"""How the files of trtexec and EngineInspector begin, their keys in any order, and a dictionary of two layers or more
and their times."""
_LAYERS: Final = re.compile(r'\{[^{}]*"Layers"\s*:\s*\[')
_LAYER_DUMP: Final = re.compile(
    r'(?:[^\s{\[][^\n]*\n\s*)*\[?\s*\{\s*"Name"\s*:\s*"(?:[^"\\]|\\.)*"\s*,\s*"LayerType"\s*:'
)
"""EngineInspector's JSON behind something else, and of single layers, perhaps behind a line of text."""
_METADATA: Final = re.compile(
    r'\{\s*"(?:model_options|build_options|performance_summary|inference_options|device_information)"\s*:'
)
_DEVICE: Final = re.compile(r'\[?\s*\{\s*"Name"\s*:\s*"[^"]*"\s*,\s*"ComputeCapability"\s*:')
STATISTICS: Final[Mapping[int, Sequence[str]]] = {
    5: ("min", "max", "mean", "median", "percentile(99%)"),
    7: ("min", "max", "mean", "median", "percentile(90%)", "percentile(95%)", "percentile(99%)"),
}
"""How many numbers TREx has of a quantity → what they are."""
LONG: Final = 0.2
"""Ours: a layer of a fifth of the time is what to look at."""
CONVERTING: Final = 0.05
"""Ours: reformats of a twentieth of the time are worth removing."""
SHOWN: Final = 3
OF_DLA: Final = " from nvm"
"""How layers end that copy what a DLA computed."""
DETAILED: Final = "trtexec --profilingVerbosity=detailed --exportLayerInfo=x.graph.json … (when the engine is built)"


def recognises(head: Head) -> bool:
    """Whether it is about the layers of an engine, or about inferences."""
    text = head.text
    if _LAYER_DUMP.match(text):
        return True
    return _TRT_JSON.match(text) is not None or ("traceEvents" not in text and _LAYERS.match(text) is not None)


def read(path: Path) -> Capture:
    """The layers with their times, as far as the file and the one beside it tell; or what bounds the inferences."""
    from inferprof.readers import trt_json

    every = trt_json.documents(path)
    content = every[0]
    kind = trt_json.kind_of(path, content)
    notes = [f"{len(every)} documents, one run appended to the other: this is about the first"] if every[1:] else []
    if kind == "times":
        return _inferences(path, content, notes)
    if kind == "layers":
        return engine(trt_json.read_layers(path, content), (), notes)
    times = trt_json.read_times(path, content)
    graph = trt_json.graph_of(path)
    layers = trt_json.read_layers(graph, trt_json.load(graph)) if graph.exists() else ()
    return engine(
        layers, times, [*notes, *([f"with the layers in {graph.name} beside it"] if layers else [])], path, graph
    )


def join(paths: Sequence[Path]) -> Capture | None:
    """The layers of one file, their times of another and the inferences of a third, as far as these are there; None
    where the files hold something else."""
    from inferprof.readers import trt_json

    by_kind: dict[str, list[tuple[Path, Any]]] = {}
    for path in paths:
        content = trt_json.documents(path)[0]
        by_kind.setdefault(trt_json.kind_of(path, content), []).append((path, content))
    timed = [*by_kind.get("profile", ()), *by_kind.get("iprofiler", ())]
    described, inferences = by_kind.get("layers", []), by_kind.get("times", [])
    if len(timed) != 1 or len(described) > 1 or len(inferences) > 1 or not (described or inferences):
        return None
    times = trt_json.read_times(*timed[0])
    graph = trt_json.graph_of(timed[0][0])
    described = described or ([(graph, trt_json.load(graph))] if graph.exists() else [])
    layers = trt_json.read_layers(*described[0]) if described else ()
    graph = described[0][0] if described else graph
    whole = engine(layers, times, (), timed[0][0], graph)
    if not inferences or (joined := _of_inferences(layers, times, *inferences[0])) is None:
        return None if inferences else whole
    return replace(joined, ran=[*whole.ran, *joined.ran], rows=whole.rows)


def _of_inferences(layers: Sequence[Layer], times: Sequence[LayerTime], path: Path, content: Any) -> Capture | None:
    """The layers with the shares that they have of the median of inferences in which none was timed."""
    import numpy as np

    from inferprof.readers import trt_json

    median = float(np.median(trt_json.inferences(path, content)[0]["compute"]))
    listed = sum(time.mean for time in times)
    fitted = [replace(time, mean=time.mean * median / listed) for time in times] if listed else []
    return trtexec_bound.beside(engine(layers, fitted, ()), _inferences(path, content, ()), listed, median)


def engine(
    layers: Sequence[Layer],
    times: Sequence[LayerTime],
    notes: Sequence[str],
    timed: Path = Path(),
    described: Path = Path(),
    whole: float = 0.0,
) -> Capture:
    """What an engine is made of; whole: what all layers take, ns, where times are of some of them.

    Raises UserError for layers and times of two engines."""
    from inferprof.tables.nodes import trt_layers

    if layers and times:
        trt_layers.check_match(layers, times, described, timed)
    listed = sum(time.mean for time in times)
    total = max(whole, listed)
    left = {"layers that this table leaves out": total - listed} if total > listed else {}
    findings = _findings(layers, times, total) if total else []
    inferences = max((time.count for time in times), default=0)
    ran = [
        f"TensorRT engine of {counted(len(layers or times), 'layer')}",
        *([f"timed one by one over {counted(inferences, 'inference')}"] if times else ["no times"]),
    ]
    return Capture(
        TOOL,
        ran,
        rows=trt_layers.tidy(layers, times, TOOL),
        total=Total(total, "the layers' times, which each hold what timing them costs") if total else None,
        parts={**_parts(layers, times), **left},
        answers=[Answer("engine_layers", "engine", "found", findings=tuple(findings))] if findings else [],
        notes=[*notes, *_described(layers), *opaque(layers, times), *_longest(times, total)],
        lacks=list(_lacks(layers, times)),
        runtime="tensorrt",
    )


def _parts(layers: Sequence[Layer], times: Sequence[LayerTime]) -> dict[str, float]:
    """Where the layers' time goes: by what they do, as far as their kinds are told."""
    kinds = {layer.name: _kind(layer) for layer in layers}
    parts: dict[str, float] = {}
    for time in times:
        kind = kinds.get(time.name) or _kind(Layer(time.name))
        parts[kind] = parts.get(kind, 0.0) + time.mean
    return dict(sorted(parts.items(), key=lambda part: -part[1]))


def _kind(layer: Layer) -> str:
    from inferprof.tables.nodes.kernel_formats import conversion_of, is_region

    if converts := conversion_of(layer):
        return f"{converts} layers"
    return "fused regions" if is_region(layer) else f"{layer.kind} layers" if layer.kind else "layers"


def _findings(layers: Sequence[Layer], times: Sequence[LayerTime], total: float) -> Iterator[Finding] | list[Finding]:
    """The longest layer, and what layers that only convert take."""
    from inferprof.tables.nodes.kernel_formats import conversion_of

    findings: list[Finding] = []
    by_name = {layer.name: layer for layer in layers}
    converting = [time for time in times if conversion_of(by_name.get(time.name, Layer(time.name)))]
    spent = sum(time.mean for time in converting)
    if spent / total >= CONVERTING:
        reason = (
            f"{len(converting)} of {len(times)} layers only convert formats or layouts, {100 * spent / total:.1f} %"
        )
        advice = (
            "neighbours in one format, inputs in the layout that the first layer takes, quantizers around products"
        )
        findings.append(_finding("reformats", "kernels", spent / total, reason, Gain(0.0, spent), advice))
    longest = max(times, key=lambda time: time.mean)
    if longest.mean / total >= LONG and longest not in converting:
        reason = f"one layer takes {ms(longest.mean)}, {100 * longest.mean / total:.1f} % of all"
        advice = "see which kernels it runs (nsys), and what bounds them (ncu); another size, format or operator"
        if longest.name.endswith(OF_DLA):
            reason = f"{reason}: it waits for the DLA, whose time this is"
            advice = "see which layers are on the DLA (trtexec --verbose); fewer changes between it and the GPU"
        findings.append(_finding(longest.name, "kernels", longest.mean / total, reason, None, advice))
    return findings


def _finding(
    subject: str, bottleneck: Bottleneck, share: float, reason: str, gain: Gain | None, advice: str
) -> Finding:
    return Finding(subject, bottleneck, share, reason, {"share": share}, TOOL, gain, advice, "medium")


def _described(layers: Sequence[Layer]) -> list[str]:
    """Kinds and number formats by count: what a file without times tells."""
    kinds = Counter(layer.kind for layer in layers if layer.kind)
    formats = Counter(
        next((tensor.dtype for tensor in layer.outputs if tensor.dtype), None) for layer in layers if layer.outputs
    )
    lines = []
    if kinds:
        lines.append(f"layers by kind: {by_count(kinds)}")
    if by_dtype := Counter({dtype: count for dtype, count in formats.items() if dtype}):
        lines.append(f"number formats of what layers write, by count: {by_count(by_dtype)}")
    return lines


def by_count(counts: Counter[str | None] | Counter[str], most: int = 6) -> str:
    """`gemm 5, copy 2`: the most first, with how many others there are."""
    listed = [f"{name} {count}" for name, count in counts.most_common(most)]
    rest = sum(counts.values()) - sum(count for _, count in counts.most_common(most))
    return ", ".join([*listed, *([f"{rest} others"] if rest else [])])


def opaque(layers: Sequence[Layer], times: Sequence[LayerTime]) -> list[str]:
    """How much of an engine no layer tells of, and what opens it."""
    from inferprof.tables.nodes.kernel_formats import is_region

    names = [layer.name for layer in layers if is_region(layer)] or (
        [time.name for time in times if is_region(Layer(time.name))] if not layers else []
    )
    if not names:
        return []
    total, inside = sum(time.mean for time in times), sum(time.mean for time in times if time.name in set(names))
    share = f", {100 * inside / total:.1f} % of the time" if total else ""
    return [
        f"opaque: {len(names)} of {len(layers or times)} layers are fused regions (ForeignNode, Myelin){share}; a "
        "trace of their kernels opens them: nsys profile --trace=cuda,nvtx"
    ]


def _longest(times: Sequence[LayerTime], total: float) -> list[str]:
    if not times:
        return []
    top = sorted(times, key=lambda time: -time.mean)[:SHOWN]
    return ["longest: " + "; ".join(f"{t.name} {ms(t.mean, 4)} ({100 * t.mean / max(total, 1):.1f} %)" for t in top)]


def _lacks(layers: Sequence[Layer], times: Sequence[LayerTime]) -> Iterator[Lack]:
    if layers and all(layer.kind is None for layer in layers):
        yield Lack("what the layers are and compute in: only their names are here", DETAILED)
    if not times:
        yield Lack(
            "how long they take", "trtexec --loadEngine=… --dumpProfile --separateProfileRun --exportProfile=…"
        )
    else:
        yield trtexec_bound.TIMED_ALONE


# --- inferences and metadata -----------------------------------------------------------------------------------


def _inferences(path: Path, content: Sequence[Mapping[str, float]], notes: Sequence[str]) -> Capture:
    """What bounds the inferences of --exportTimes."""
    import numpy as np

    from inferprof.readers import trt_json
    from inferprof.tables.nodes import trt_layers

    stages, span = trt_json.inferences(path, content)
    names = {
        "compute": trtexec_bound.GPU_TIME,
        "enqueue": trtexec_bound.ENQUEUE,
        "h2d": trtexec_bound.H2D,
        "d2h": trtexec_bound.D2H,
        "latency": trtexec_bound.LATENCY,
    }
    run = TrtexecRun(None, "")
    for stage, values in stages.items():
        ms = values / 1e6
        run.summary[names[stage]] = {
            "mean": float(np.mean(ms)),
            "median": float(np.median(ms)),
            "max": float(ms.max()),
        }
    run.throughput = 1e3 * len(content) / span if span and span > 0 else None
    judged = trtexec_bound.capture(run, [f"trtexec --exportTimes, {counted(len(content), 'inference')}"], notes)
    mean = run.summary[trtexec_bound.GPU_TIME]["mean"]
    compute = f"GPU compute: mean {mean:.6g} ms, median {run.of(trtexec_bound.GPU_TIME, 'median'):.6g} ms"
    return replace(judged, rows=trt_layers.tidy_inferences(stages, TOOL), notes=[*judged.notes, compute])


def read_metadata(path: Path) -> Capture:
    """What TREx keeps of a log of trtexec. Raises UserError for another file."""
    from inferprof.readers import trt_json

    content = trt_json.load(path)
    if isinstance(content, list):
        content = content[0] if content and isinstance(content[0], dict) else {}
    if "Name" in content:
        gpu = [str(content["Name"])]
        lacks = [Lack("anything about an engine: this is a GPU's description", DETAILED)]
        return Capture(trtexec_bound.TOOL, ["TREx, the device", *gpu], lacks=lacks, runtime="tensorrt")
    run = TrtexecRun(None, "")
    for name, section in content.items():
        if isinstance(section, dict) and name != "performance_summary":
            run.options[name] = {str(key): str(value) for key, value in section.items()}
    for name, value in content.get("performance_summary", {}).items():
        if isinstance(value, list) and len(value) in STATISTICS:
            run.summary[name] = dict(zip(STATISTICS[len(value)], map(float, value), strict=True))
        elif name == "Throughput" and isinstance(value, int | float):
            run.throughput = float(value)
    if not run.options and not run.summary:
        raise UserError(f"{path} is none of TREx's metadata: give what it makes of trtexec's log")
    ran = ["TREx metadata of trtexec", *filter(None, [run.option("Selected Device"), run.option("Precision")])]
    if run.summary:
        return trtexec_bound.capture(run, [*ran, *([f"{run.throughput:,.6g} qps"] if run.throughput else [])])
    lacks = [Lack("how fast the engine is: these are the options that it was built with", "trtexec --loadEngine=…")]
    notes = ["built with " + ", ".join(f"{k}: {v}" for k, v in run.options.get("build_options", {}).items() if v)]
    return Capture(trtexec_bound.TOOL, ran, notes=notes, lacks=lacks, runtime="tensorrt")


TRT_LAYERS: Final = Kind(
    name=TOOL,
    title="what TensorRT says of an engine's layers",
    recognises=recognises,
    read=read,
    join=join,
    tool=TOOL,
    rank=60,
)
TRT_METADATA: Final = Kind(
    name="trt_metadata",
    title="TREx's metadata",
    recognises=lambda head: bool(_METADATA.match(head.text) or _DEVICE.match(head.text)),
    read=read_metadata,
    rank=61,
)
