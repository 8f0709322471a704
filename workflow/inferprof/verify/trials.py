"""What the rows of verify try: verbs of the command line, and a look at the files that they leave."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar, get_args

from inferprof import documents, registry
from inferprof.backends import refusals
from inferprof.case import Case, OptionValue
from inferprof.documents import Environment, Record
from inferprof.errors import CaseFailed
from inferprof.verify import model
from inferprof.verify.site import MODEL, SHAPE, TABLES, TORCH, Site, case_of, records_since, require_built, require_ok

Options = Mapping[str, OptionValue] | None
Found = TypeVar("Found")
Timed = Literal["device", "end_to_end"]
BOUNDARIES: tuple[Timed, ...] = get_args(Timed)
AOT_CAPABILITIES = ("12.0", "12.1")
LAYER_SHARE = 0.9
"""Of the time of an engine's kernels, the part that must belong to a layer: TensorRT opens a range around each."""
ROUNDS_DIFFER = 0.5
"""Two rounds of a case on a quiet GPU differ by percents; beyond this no time can be trusted."""
ON_GPU = tuple(case_of(backend) for backend in ("ort_cuda", "torch_eager", "tensorrt", "tensorrt_rtx"))
"""Any of these shows what is the GPU's and no runtime's."""


# --- what may be lacking ---------------------------------------------------------------------------------------


def no_gpu(site: Site) -> str | None:
    """Why nothing computes on a GPU here."""
    return refusals.no_gpu(site.machine)


def unwatched(site: Site, profiler: str) -> str | None:
    """Why no case on a GPU can be watched with a profiler, or its capture not be read."""
    return no_gpu(site) or _all_refused(site, ON_GPU, profiler) or site.lacks_modules(*TABLES)


def unmeasured(site: Site) -> str | None:
    """Why no case on a GPU can be measured."""
    return no_gpu(site) or _all_refused(site, ON_GPU)


def unformatted(site: Site, precision: str) -> str | None:
    """Why nothing computes in a number format here, or the graph cannot be made, or nothing watches the kernels."""
    case, profiler = _ways(precision)[0]
    refused = None if _way(site, precision) else site.refusal(case, profiler)
    return no_gpu(site) or refused or site.lacks("nvidia-modelopt", *TORCH) or site.lacks_modules(*TABLES)


def _all_refused(site: Site, cases: Sequence[Case], *profilers: str) -> str | None:
    return None if site.allowed(cases, *profilers) else site.refusal(cases[0], *profilers)


def _ways(precision: str) -> list[tuple[Case, str]]:
    """Cases in a number format and what watches their kernels, the most telling first."""
    ways = [(backend, watcher) for backend in ("tensorrt", "tensorrt_rtx") for watcher in ("trt_nodes", "trt_layers")]
    if not registry.precisions()[precision].quantized:  # ONNX Runtime has kernels of its own for these formats alone
        ways += [("ort_cuda", "nsys"), ("ort_cuda", "kineto")]
    return [(case_of(backend, precision), watcher) for backend, watcher in ways]


def _way(site: Site, precision: str) -> tuple[Case, str] | None:
    return next((way for way in _ways(precision) if site.refusal(*way) is None), None)


# --- trials ----------------------------------------------------------------------------------------------------


def probes(site: Site) -> str:
    """environment.json, and of it the GPU and the driver."""
    out = site.measured("environment.json")
    site.verb("probe", "--out", out)
    facts: Environment = documents.read(out, "environment")
    gpu = site.machine.gpu
    device = f"{gpu.name}, {gpu.sm}, driver {gpu.driver}" if gpu else f"no GPU, {site.machine.cpu}"
    return f"{device}, Python {facts.system['python']}"


def exports(site: Site) -> str:
    """The model as fp32 ONNX: of torch where it is installed, else made of a few nodes."""
    described = site.out / "models" / f"{MODEL}.yaml"
    if missing := site.lacks(*TORCH):
        described.unlink(missing_ok=True)
        model.write_onnx(site.spec)
    else:
        model.describe(described)
    site.verb("export", site.spec, "--out", site.onnx())
    origin = f"made of nodes, since {missing}" if missing else "exported from torch"
    return f"{origin}, {site.onnx().stat().st_size / 1e6:.1f} MB"


def agrees(site: Site, backend: str, variant: str = "default", options: Options = None) -> str:
    """A case whose outputs agree with the fp32 graph on the CPU; its engine is built first, but for a variant."""
    case = case_of(backend, variant=variant)
    if variant == "default" and registry.backends()[backend].build:
        site.build(case)
    record = site.run(case, options)
    return f"{_compared(record)}; {_median(record)}"


def _compared(record: Record) -> str:
    """What the record says of its outputs. Raises CaseFailed where they were compared with nothing."""
    match = record.checks["outputs_match"]
    if match.not_measured is not None:
        raise CaseFailed(f"the outputs were not compared: {match.not_measured}")
    return str(match.detail)


def _median(record: Record) -> str:
    """`device 12.3 µs`, or of a CPU `end_to_end 12.3 µs`."""
    medians = {name: median_ns(record, name) for name in BOUNDARIES}
    name, ns = next((name, ns) for name, ns in medians.items() if ns is not None)
    return f"{name} {ns / 1e3:.1f} µs"


def median_ns(record: Record, name: Timed) -> float | None:
    """The median of a boundary; None where it was not measured."""
    boundary = getattr(record.boundaries, name, None)
    return statistics.median(boundary.samples_ns) if boundary and boundary.samples_ns else None


def builds_ahead(site: Site) -> str:
    """Engines of TensorRT-RTX for other GPUs."""
    said = []
    for capability in AOT_CAPABILITIES:
        out = site.out / f"aot-sm{capability.replace('.', '')}" / "engine" / f"{MODEL}.engine"
        words = ("--spec", site.spec, "--shape", SHAPE, "--target", capability, "--out", out)
        site.verb("build", "tensorrt_rtx", site.onnx(), *words)
        require_built(out)
        said.append(f"an engine of {out.stat().st_size / 1e6:.1f} MB for {capability}")
    return ", ".join(said)


def partitions_by_parser(site: Site) -> str:
    """How many nodes the parser takes at a fixed shape: of this model all."""
    out = site.out / "onnx" / MODEL / "fp32.partition.json"
    site.verb("partition", site.onnx(), "--spec", site.spec, "--shape", SHAPE, "--out", out)
    static = documents.read(out, "partition").static
    if static.not_measured is not None:
        raise CaseFailed(static.not_measured)
    if static.taken < static.nodes:
        raise CaseFailed(f"it takes {static.taken} of {static.nodes} nodes: {static.left[0].words}")
    return f"takes all {static.nodes} nodes"


def partitions(site: Site, backend: str) -> str:
    """Which provider ran how many nodes. Raises CaseFailed where TensorRT's ran none."""
    from inferprof.readers import ort_events

    case = case_of(backend)
    events = ort_events.read(site.watch("ort_profile", case))
    nodes = {(ort_events.provider_of(event), event["name"]) for event in events if ort_events.is_node(event)}
    counts = Counter(provider for provider, _ in nodes)
    said = ", ".join(f"{provider}: {count}" for provider, count in counts.most_common())
    if "tensorrt" not in said.lower():
        raise CaseFailed(f"no node ran on TensorRT: {said}")
    _table_if_possible(site, "ort_profile", case)
    return f"nodes by the provider that ran them: {said}"


def _table_if_possible(site: Site, profiler: str, case: Case) -> None:
    """Read a capture as a study does, where there is what that takes."""
    if site.lacks_modules(*TABLES) is None:
        site.tabled(profiler, case)


def times_layers(site: Site) -> str:
    """TensorRT's own layers, each with a time."""
    from inferprof.readers import trt_json

    case = case_of("tensorrt")
    profile = site.watch("trt_layers", case)
    graph = trt_json.graph_of(profile)
    layers = trt_json.read_layers(graph, trt_json.load(graph))
    times = trt_json.read_times(profile, trt_json.load(profile))
    if not times:
        raise CaseFailed("TensorRT timed no layer")
    _table_if_possible(site, "trt_layers", case)
    return f"{len(layers)} layers, {len(times)} timed"


def joins_layers(site: Site) -> str:
    """The share of kernel time that belongs to a layer, and to an ONNX node."""
    from inferprof.tables import schema
    from inferprof.tables.nodes import attribution, trt_kernels

    case = case_of("tensorrt")
    site.watch("trt_nodes", case)
    joined = trt_kernels.attributed(schema.read_table(site.tabled("trt_nodes", case)))
    shares = attribution.shares(joined)["attributed_share"].fillna(0)
    said = f"{shares['layer']:.0%} of the kernels' time belongs to a layer, {shares['op']:.0%} to an ONNX node"
    if shares["layer"] < LAYER_SHARE:
        raise CaseFailed(f"only {said}")
    return said


def traces(site: Site, profiler: str) -> str:
    """The kernels of a case on the GPU, as a profiler saw them."""
    case = _required(site.allowed(ON_GPU, profiler))
    _make(site, case)
    site.watch(profiler, case)
    return f"{_kernels(site.tabled(profiler, case))} of {case.backend}"


def counts(site: Site) -> str:
    """The counters of the longest kernels that nsys saw."""
    from inferprof.tables import schema

    case = _required(site.allowed(ON_GPU, "nsys", "ncu"))
    site.watch("ncu", case, timeline=site.table("nsys", case))
    frame = schema.read_table(site.tabled("ncu", case))
    counted = frame[(frame["level"] == "kernel") & frame["value"].notna()]
    if counted.empty:
        raise CaseFailed(f"no counter was read: {', '.join(frame['text'].dropna())}")
    return f"{counted['metric'].nunique()} metrics of {counted['name'].nunique()} kernels of {case.backend}"


def _kernels(table: Path) -> str:
    """`31 kernels in 10 iterations`. Raises CaseFailed where a table has none."""
    from inferprof.tables import schema
    from inferprof.tables.trace import kernel_compare

    frame = schema.read_table(table)
    rows = kernel_compare.of_iterations(frame)
    total = rows[rows["metric"] == "duration_total"]
    if total.empty:
        raise CaseFailed("the capture holds no kernel")
    busy_us = total["value"].sum() / 1e3
    return f"{total['instances'].sum()} launches of {total['name'].nunique()} kernels, {busy_us:.1f} µs"


def computes_in(site: Site, precision: str, at_least: float) -> str:
    """The share of the time in matrix products that ran in a number format; its outputs agree with fp32."""
    from inferprof.tables import schema
    from inferprof.tables.nodes import kernel_formats, precision_truth

    case, profiler = _required(_way(site, precision))
    onnx = site.onnx(precision)
    site.verb("quantize", precision, site.onnx(), "--spec", site.spec, "--out", onnx)
    _make(site, case)
    outputs = _compared(site.run(case))
    site.watch(profiler, case)
    kernels = kernel_formats.of_case(schema.read_table(site.tabled(profiler, case)))
    said = precision_truth.sentence(kernels, precision)
    share = precision_truth.share_as_asked(kernels, precision)
    if share is None or share < at_least:
        raise CaseFailed(said)
    return f"{said}; {outputs}"


def samples_telemetry(site: Site) -> str:
    """Clocks, power and temperature over a run; a throttled GPU is no failure, but it is said."""
    case = _required(site.allowed(ON_GPU))
    _make(site, case)
    telemetry = site.run(case, round_=1, budget_s=1.0).telemetry
    if telemetry is None or telemetry.summary is None:
        raise CaseFailed((telemetry and telemetry.not_measured) or "the record has no telemetry")
    summary = telemetry.summary
    if summary.sm_mhz is None:
        raise CaseFailed("NVML tells no clock of this GPU")
    parts = [f"{summary.samples} samples", f"{summary.sm_mhz.median:.0f} MHz"]
    parts += [f"{summary.power_w.median:.0f} W"] if summary.power_w else ["power is not told"]
    parts += [f"throttled: {', '.join(summary.throttle_reasons)}"] if summary.throttled else ["not throttled"]
    return ", ".join(parts)


def measures_bandwidth(site: Site) -> str:
    """The link's and the memory's bandwidth; the memory is the faster one, or something is wrong."""
    out = site.measured("bandwidth.json")
    site.verb("bandwidth", "--out", out)
    bandwidth = require_ok(documents.read(out, "bandwidth"))
    link, memory = bandwidth.h2d.pinned.gb_per_s, bandwidth.d2d.gb_per_s
    said = f"link {link:.1f} GB/s, memory {memory:.0f} GB/s"
    if _shares_memory(site.measured("environment.json")):
        return f"{said}; the GPU shares the host's memory, so that the link is a copy within it"
    if memory <= link:
        raise CaseFailed(f"{said}: the memory cannot be slower than the link")
    return said


def _shares_memory(environment: Path) -> bool:
    """Whether the row `probe` found that the GPU has no memory of its own."""
    gpus = documents.read(environment, "environment").gpus if environment.exists() else ()
    return isinstance(gpus, list) and any(gpu.used and gpu.integrated is True for gpu in gpus)


def checks_itself(site: Site) -> str:
    """The self-checks of all runs of this verify; on a GPU, also whether two rounds of one case agree."""
    records = [record for _, record in records_since(site.measured("benchmark"), site.started)]
    checks = [(record.case, name, check) for record in records for name, check in record.checks.items()]
    if not checks:
        raise CaseFailed("no run left a record")
    for case, name, check in checks:
        if check.passed is False:
            raise CaseFailed(f"{case.backend} {case.precision} {case.variant}: {name}: {check.detail}")
    return f"{len(checks)} checks in {len(records)} runs passed; {_rounds(site)}"


def _rounds(site: Site) -> str:
    """How far apart two rounds of one case on the GPU are. Raises CaseFailed where that is too far."""
    case = site.allowed(ON_GPU)
    paths = [site.record(case, round_) for round_ in (0, 1)] if case and site.machine.gpu else []
    if not paths or not all(path.exists() for path in paths):
        return "no case ran twice on a GPU"
    first, second = (median_ns(documents.read(path, "record"), "device") for path in paths)
    if first is None or second is None:
        return "no case was timed twice on a GPU"
    apart = abs(second / first - 1)
    said = f"two rounds of {case.backend if case else ''} are {apart:.1%} apart"
    if apart > ROUNDS_DIFFER:
        raise CaseFailed(f"{said}: this GPU is shared, throttled or not yet warm")
    return said


def _make(site: Site, case: Case) -> None:
    """Build the engine of a case that needs one and has none yet."""
    if registry.backends()[case.backend].build and not site.artifact(case).exists():
        site.build(case)


def _required(candidate: Found | None) -> Found:
    """What the row's needs have promised."""
    if candidate is None:
        raise CaseFailed("nothing here can be watched in that way")
    return candidate
