"""trtexec as a second clock on an engine: every switch that changes a measurement spelled out, and the difference.

Its GPU compute time is our `device` boundary (inputs resident, from event to event on the stream) where one inference
is in flight at a time. By default there are two, so that the second is queued before the first has ended and the
time to launch it is hidden: --exposeDMA ends that, without transfers too.

TensorRT 10 copies inputs and outputs, waits asleep and launches without a graph unless told otherwise
(--noDataTransfers, --useSpinWait, --useCudaGraph). In TensorRT 11 all three defaults are the opposite, and those
switches do nothing (--includeDataTransfers, --noSpinWait, --noCudaGraph). Neither takes switches that it does not
know, so they follow the version, and what trtexec says of itself in its log is held against what was asked.

Sources: NVIDIA/TensorRT's sampleOptions.cpp, sampleInference.cpp and sampleReporting.cpp, in samples/common of 10.x
and in samples/trtexecCommon of 11.4 and later (16ed063, a9de66b); logs of 8.4.1 and 10.16.1.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from inferprof import documents, processes, progress, stats
from inferprof.case import Case, Shape
from inferprof.documents import Record
from inferprof.documents.record import Boundary
from inferprof.errors import ToolError, UserError
from inferprof.files import read_json
from inferprof.machine import hardware
from inferprof.measure import device_lock
from inferprof.model.model_spec import ModelSpec, input_shapes
from inferprof.readers import trtexec_log
from inferprof.units import NS_PER_MS

NAME = "trtexec"
BACKEND = "tensorrt"
"""The backend whose engines it runs."""
FLOOR = (10, 0, 0)
WARM_UP_MS = 1000
DURATION_S = 3
"""Times are differences of moments since the start, which trtexec keeps as 32-bit ms: beyond 4.096 s they would only
resolve 0.49 µs, up to there 0.24 µs."""
ITERATIONS = 100
"""At the least; a run lasts until it has both these and its duration."""
SCHEMA = 1
"""The version of what `inferprof trtexec` writes."""

Runner = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]
"""Runs a command to its end; what it says on both streams is in `stdout`."""


@dataclass(frozen=True)
class Tool:
    """A trtexec, and the TensorRT that it was built with."""

    path: str
    version: tuple[int, int, int]


@dataclass(frozen=True)
class Log:
    """What trtexec says of a run."""

    settings: Mapping[str, str]
    """Its inference options, by its own names: `CUDA Graph` → `Enabled`."""
    throughput: float
    """Queries per second."""
    summary: Mapping[str, Mapping[str, float]]
    """Its performance summary in ms: `GPU Compute Time` → min, max, mean, median, percentile(99%) …"""
    warnings: tuple[str, ...]


# --- asking ----------------------------------------------------------------------------------------------------


def find(runner: Runner = processes.run_merged) -> Tool:
    """The trtexec on PATH. Raises UserError where there is none, ToolError where it does not run."""
    path = shutil.which(NAME)
    if path is None:
        raise UserError(f"{NAME} is not on PATH: it comes with TensorRT's packages and NGC's images, not with wheels")
    command = [path, "--help"]
    done = runner(command)
    match = re.search(r"\[TensorRT v(\d+)\]", done.stdout)
    if match is None:
        raise ToolError(command, done.returncode, done.stdout)
    return Tool(path, trtexec_log.version(int(match.group(1))))


def unsuitable(tool: Tool, engine: Path) -> str | None:
    """Why a trtexec is no second clock on an engine: unknown switches, or an engine of another TensorRT; or None.

    What built the engine is in the .build.json beside it; without one, trtexec decides.
    """
    if tool.version < FLOOR:
        return f"{NAME} of TensorRT {dotted(tool.version)} is not known; needs {dotted(FLOOR)} or newer"
    facts = engine.with_suffix(".build.json")
    versions = documents.read(facts, "build").versions if facts.exists() else {}
    built = versions.get(BACKEND) or dotted(tool.version)
    if hardware.parse_version(built)[: len(tool.version)] != tool.version:
        return f"{NAME} is of TensorRT {dotted(tool.version)}, the engine of {built}"
    return None


def dotted(numbers: Sequence[int]) -> str:
    """`10.16.1`."""
    return ".".join(map(str, numbers))


def switches(release: Sequence[int], shapes: Mapping[str, Sequence[int]], *, graph: bool) -> list[str]:
    """Everything that decides what is measured, for a TensorRT of this version."""
    if release[0] >= 11:
        flipped = [] if graph else ["--noCudaGraph"]
    else:
        flipped = ["--noDataTransfers", "--useSpinWait", *(["--useCudaGraph"] if graph else [])]
    return [
        f"--shapes={','.join(_shape(name, sizes) for name, sizes in shapes.items())}",
        *flipped,
        "--exposeDMA",
        "--infStreams=1",
        "--useProfile=0",
        "--device=0",
        "--allocationStrategy=static",
        "--persistentCacheRatio=0",
        "--sleepTime=0",
        "--idleTime=0",
        f"--warmUp={WARM_UP_MS}",
        f"--duration={DURATION_S}",
        f"--iterations={ITERATIONS}",
        "--avgRuns=100",
        "--percentile=90,95,99",
    ]


def _shape(name: str, sizes: Sequence[int]) -> str:
    """`image:8x3x224x224`; a name with a colon in quotes, and a scalar by that word."""
    return f"{repr(name) if ':' in name else name}:{'x'.join(map(str, sizes)) or 'scalar'}"


def command(tool: Tool, engine: Path, shapes: Mapping[str, Sequence[int]], times: Path, *, graph: bool) -> list[str]:
    """The command that measures an engine and writes the time of each inference to `times`."""
    given = switches(tool.version, shapes, graph=graph)
    return [tool.path, f"--loadEngine={engine}", *given, f"--exportTimes={times}"]


def expected(*, graph: bool) -> dict[str, str]:
    """What trtexec's log must say of its settings, in 10 as in 11."""
    return {
        "Inference Streams": "1",
        "ExposeDMA": "Enabled",
        "Data transfers": "Disabled",
        "Spin-wait": "Enabled",
        "Multithreading": "Disabled",
        "CUDA Graph": "Enabled" if graph else "Disabled",
        "Sleep time": "0ms",
        "Idle time": "0ms",
        "Persistent Cache Ratio": "0",
        "Optimization Profile Index": "0",
    }


# --- reading ---------------------------------------------------------------------------------------------------


def read_times(path: Path) -> tuple[float, ...]:
    """GPU compute time in ns of each inference, in order, from a file of --exportTimes (TensorRT 7 to 11).

    Raises UserError where it is no such file.
    """
    try:
        return tuple(row["computeMs"] * NS_PER_MS for row in read_json(path))
    except (KeyError, TypeError):
        raise UserError(f"{path} is not what trtexec --exportTimes writes: no list of rows with computeMs") from None


def read_log(text: str) -> Log:
    """What the log of one run says. Raises UserError where it has no performance summary."""
    run = next((run for run in reversed(trtexec_log.runs(text)) if run.throughput is not None), None)
    if run is None:
        raise UserError("the log of trtexec holds no performance summary: it is of no run that came to its end")
    settings = {name: value for name, value in run.options.get("Inference Options", {}).items() if value}
    return Log(settings, run.throughput or 0.0, run.summary, tuple(run.warnings))


# --- comparing -------------------------------------------------------------------------------------------------


def measure(engine: Path, spec: ModelSpec, record: Record, runner: Runner = processes.run_merged) -> dict[str, Any]:
    """Let trtexec measure the engine of a benchmark's record, and compare its GPU compute time with `device`.

    Where there is nothing to compare, the result says why. Raises UserError where the record is of another model or
    backend or there is no trtexec, ToolError where trtexec failed.
    """
    shapes, graph = _asked(spec, record), bool(record.protocol["graph"])
    tool = find(runner)
    head = {
        "schema": SCHEMA,
        "case": msgspec.structs.asdict(record.case),
        "round": record.round,
        "version": dotted(tool.version),
    }
    if reason := _no_device(record) or unsuitable(tool, engine):
        return {**head, "comparison": {"not_compared": reason}}
    gpu = hardware.detect_gpu()
    with (
        progress.task(f"Measure {Case.from_path(record.case.path)} with {NAME}", (NAME,), measures=True),
        device_lock.hold([gpu] if gpu else [], f"{NAME} {engine.name}"),
    ):
        progress.step(NAME)
        log, samples = _run(runner, tool, engine, shapes, graph=graph)
    reason = unlike(log, graph=graph)
    return {
        **head,
        "switches": switches(tool.version, shapes, graph=graph),
        "settings": dict(log.settings),
        "throughput_qps": log.throughput,
        "summary_ms": {name: dict(values) for name, values in log.summary.items()},
        "warnings": list(log.warnings),
        "comparison": {"not_compared": reason} if reason else compare(record, samples),
    }


def _asked(spec: ModelSpec, record: Record) -> dict[str, tuple[int, ...]]:
    """The input shapes of the record's case. Raises UserError where it is not of this model or backend."""
    case = Case.from_path(record.case.path)
    if case.backend != BACKEND:
        raise UserError(f"{case} is of backend {case.backend}; {NAME} runs the engines of {BACKEND}")
    if case.model != spec.name:
        raise UserError(f"the record is of model {case.model}, the description of {spec.name}: give the one's own")
    return input_shapes(spec, spec.at(Shape.parse(case.shape)))


def _no_device(record: Record) -> str | None:
    """Why the record has no measurement of `device` to compare with, or None."""
    if record.status != "ok" or record.boundaries is None:
        return f"the case failed: {record.reason}"
    device = record.boundaries.device or Boundary(not_measured="the record has none")
    return None if device.samples_ns else f"device was not measured: {device.not_measured}"


def _run(
    runner: Runner, tool: Tool, engine: Path, shapes: Mapping[str, Sequence[int]], *, graph: bool
) -> tuple[Log, tuple[float, ...]]:
    """What trtexec says of one run, and its GPU compute times in ns. Raises ToolError where it failed."""
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder, "times.json")
        argv = command(tool, engine, shapes, times, graph=graph)
        done = runner(argv)
        if done.returncode != 0:
            raise ToolError(argv, done.returncode, done.stdout)
        return read_log(done.stdout), read_times(times)


def unlike(log: Log, *, graph: bool) -> str | None:
    """Why a run did not measure what was asked of it, or None."""
    wanted = expected(graph=graph)
    other = [
        f"{name} is {log.settings.get(name, 'not said')}, not {value}"
        for name, value in wanted.items()
        if log.settings.get(name) != value
    ]
    if other:
        return f"{NAME} ran with other settings than asked: {'; '.join(other)}"
    if any("not permitted under CUDA graph capture mode" in warning for warning in log.warnings):
        return f"{NAME} could not capture the engine as a CUDA graph, and ran it without"
    return None


def compare(record: Record, samples_ns: Sequence[float]) -> dict[str, Any]:
    """trtexec's GPU compute times against the record's `device`; the verdict is about trtexec's."""
    assert record.boundaries and record.boundaries.device and record.boundaries.device.samples_ns
    device = record.boundaries.device.samples_ns
    ratio = stats.ratio([device], [samples_ns])
    ours, theirs = (stats.summarize(samples).median for samples in (device, samples_ns))
    return {
        "device_median_ns": ours,
        "trtexec_median_ns": theirs,
        "difference_ns": theirs - ours,
        "ratio": ratio.estimate,
        "interval": [ratio.low, ratio.high] if math.isfinite(ratio.high) else None,
        "samples": [len(device), len(samples_ns)],
        "verdict": ratio.verdict,
        "reason": ratio.reason,
    }


def render(result: Mapping[str, Any]) -> str:
    """The comparison in one line."""
    case, comparison = Case(**result["case"]), result["comparison"]
    if "not_compared" in comparison:
        return f"{case}: {comparison['not_compared']}"
    ours, theirs = (comparison[f"{clock}_median_ns"] / 1000 for clock in ("device", "trtexec"))
    return (
        f"{case}: device {ours:.2f} µs, {NAME} {result['version']} {theirs:.2f} µs "
        f"({comparison['difference_ns'] / 1000:+.2f} µs, {comparison['ratio'] - 1:+.1%})"
    )
