"""Logs of trtexec, of TensorRT 7.1 to 11."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pandas as pd

from inferprof.errors import UserError, in_one_line
from inferprof.files import text_of
from inferprof.readers import trtexec_bound
from inferprof.readers.kind import Capture, Kind, Lack, says
from inferprof.readers.kinds import nsys_text
from inferprof.readers.trtexec_log import BARE, LOGGED, RUNNING, WHOLE, TrtexecRun, joined, runs
from inferprof.units import NS_PER_MS
from inferprof.words import counted, ms, some, spread_of

SHOWN: Final = 3
NO_ERROR: Final = "no error is in this file: it went to the other stream"
SUMMARIZED: Final = ("min", "max", "mean", "median")
_MARKS: Final = re.compile(
    r"=== (?:Performance summary|(?:Model|Build|Inference) Options|Profile \(\d+ iterations ?\)|Trace details) ==="
)
_OF_NSYS: Final = re.compile(r"^ ?(?:\*\* )?(?:CUDA|NVTX) .*(?:Statistics|Summary)", re.MULTILINE)
SHAPES: Final = 4


def read(path: Path) -> Capture:
    """What the last run says that came to its end; the others in a line each. Raises UserError where none ended."""
    try:
        text = text_of(path)
        every = runs(text)
    except ValueError as error:
        raise UserError(
            f"{path} is cut short or damaged ({in_one_line(error)}): give it as trtexec wrote it"
        ) from None
    done = [run for run in every if run.summary or run.layers]
    if not done and _OF_NSYS.search(text):
        return nsys_text.read(path)
    if not done:
        return _without_summary(path, every)
    last = done[-1]
    notes = (
        [f"run {number} of {len(every)}: {_line(run)}" for number, run in enumerate(every, 1)] if every[1:] else []
    )
    if _OF_NSYS.search(text):
        notes.append("tables of nsys in the same file are not read: give them in one of their own")
    if not last.summary:
        return _layers_alone(last, notes)
    return replace(
        trtexec_bound.capture(last, _ran(last), [*_ended(last), *notes, *_longest(last)]),
        rows=_rows(last),
        steps=_steps(last),
    )


def _layers_alone(run: TrtexecRun, notes: Sequence[str]) -> Capture:
    """The layers of a log that has their table and no summary, as the JSON with the same numbers tells them."""
    from inferprof.readers.kinds import trt_json
    from inferprof.tables.nodes.trt_engine import LayerTime

    times = [
        LayerTime(
            layer.name,
            run.iterations,
            layer.total * NS_PER_MS,
            layer.mean * NS_PER_MS,
            None if layer.median is None else layer.median * NS_PER_MS,
        )
        for layer in run.layers
    ]
    of_engine = trt_json.engine((), times, [*_ended(run), *notes], whole=run.layers_ms * NS_PER_MS)
    return replace(of_engine, ran=[*_ran(run), *of_engine.ran], model=trtexec_bound.model_of(run))


def _steps(run: TrtexecRun) -> list[str]:
    """How far the inferences of a run differ, where its summary says so."""
    values = run.summary.get(trtexec_bound.GPU_TIME, {})
    if not {"min", "median", "max"} <= values.keys():
        return []
    low, median, high = (values[name] * NS_PER_MS for name in ("min", "median", "max"))
    mean = values.get("mean", values["median"]) * NS_PER_MS
    return [f"the GPU computes {ms(mean)} of each{differ}"] if (differ := spread_of(low, median, high)) else []


def _ended(run: TrtexecRun) -> list[str]:
    """That a run has numbers and failed all the same, or that its summary is cut."""
    if run.passed is False:
        return [f"trtexec says FAILED: {'; '.join(run.errors[:SHOWN]) or NO_ERROR}"]
    if run.averages and "median" not in run.summary.get(trtexec_bound.GPU_TIME, {"median"}):
        lines = counted(len(run.averages), "line")
        return [f"it has no performance summary: these are means of {lines} of averages"]
    of_cuts = ((trtexec_bound.H2D, trtexec_bound.D2H), (trtexec_bound.LATENCY, trtexec_bound.GPU_TIME))
    if lacking := [last for first, last in of_cuts if first in run.summary and last not in run.summary]:
        return [f"the log is cut: it ends before the {lacking[0]} of its performance summary"]
    return []


def _line(run: TrtexecRun) -> str:
    batch = run.option("Batch")
    shown = f"batch {batch}, " if batch and batch.isdecimal() else ""
    compute = run.of(trtexec_bound.GPU_TIME, "median", "mean")
    if run.throughput is None or compute is None:
        return f"{shown}{'failed' if run.passed is False else 'has no summary'}"
    return f"{shown}{run.throughput:,.6g} qps, GPU compute {compute:.4g} ms"


def _ran(run: TrtexecRun) -> list[str]:
    """Version, GPU, number format, shapes and file."""
    version = f" {'.'.join(map(str, run.version))}" if run.version else " 7 or older" if run.command else ""
    shapes = run.option("Input inference shapes", "Input inference shape")
    model = trtexec_bound.model_of(run)
    precision = run.option("Precision")
    return [
        f"trtexec of TensorRT{version}",
        *filter(
            None,
            [run.option("Selected Device"), precision and f"precision {precision}", shapes and _shapes(shapes)],
        ),
        *([model] if model else []),
        *([f"{run.throughput:,.6g} qps"] if run.throughput else []),
    ]


def _shapes(shapes: str) -> str:
    """The first of them, of models with many inputs."""
    if shapes == "model":
        return "shapes of the model"
    return f"shape {some(shapes.split(', '), SHAPES)}"


def _longest(run: TrtexecRun) -> list[str]:
    """The layers that take longest, and how many there are."""
    if not run.layers:
        return []
    whole = run.layers_ms
    top = sorted(run.layers, key=lambda layer: -layer.mean)[:SHOWN]
    shares = "; ".join(f"{layer.name} {layer.mean:.4g} ms ({100 * layer.mean / whole:.1f} %)" for layer in top)
    listed = sum(layer.mean for layer in run.layers) / (whole or 1.0)
    cut = f", of which this table has {100 * listed:.0f} % of the time" if 100 * listed < WHOLE else ""
    return [f"{whole:.4g} ms in {counted(len(run.layers), 'layer')}{cut}: {shares}"]


def _without_summary(path: Path, every: Sequence[TrtexecRun]) -> Capture:
    """A run that failed, that only built, or whose log is cut: errors are a reason, warnings are none."""
    if not every:
        raise UserError(f"{path} holds no run of trtexec: give its output from its first line on")
    run = every[-1]
    said = run.errors[:SHOWN]
    if run.passed is False:
        why = "; ".join(said) or NO_ERROR
        failure = f"trtexec says FAILED: {why}"
        lacks = [] if run.errors else [Lack("why it failed", f"{_again(run)} 2>&1 | tee trtexec.log")]
    else:
        cut = "the log is cut: it ends before its performance summary"
        failure = "it passed and timed no inference" if run.passed else cut
        failure += f"; it says: {'; '.join(said)}" if said else ""
        lacks = [Lack("how fast it is", f"{_again(run)} 2>&1 | tee trtexec.log, up to its last line")]
    return Capture(
        trtexec_bound.TOOL,
        _ran(run),
        notes=list(joined(run.warnings)),
        lacks=lacks,
        failure=failure,
        runtime="tensorrt",
    )


def _again(run: TrtexecRun) -> str:
    return run.command.partition(" --")[0] + " …" if run.command else "trtexec …"


def _rows(run: TrtexecRun) -> pd.DataFrame:
    """Levels stage and range of the summary, and layer of the table, as those of the JSON that it exports."""
    from inferprof.tables.schema import conform

    stages = {
        trtexec_bound.GPU_TIME: ("stage", "compute"),
        trtexec_bound.ENQUEUE: ("stage", "enqueue"),
        trtexec_bound.H2D: ("stage", "h2d"),
        trtexec_bound.D2H: ("stage", "d2h"),
        trtexec_bound.LATENCY: ("range", "latency"),
    }
    rows: list[dict[str, Any]] = []
    for quantity, (level, name) in stages.items():
        times = {statistic: ms for statistic, ms in run.summary.get(quantity, {}).items() if statistic in SUMMARIZED}
        rows += _durations({"level": level, "name": name}, times)
    for layer in run.layers:
        place = {"level": "layer", "name": layer.name, "instances": run.iterations or None}
        rows += _durations(place, {"total": layer.total, "mean": layer.mean, "median": layer.median})
    return conform(pd.DataFrame(rows), trtexec_bound.TOOL)


def _durations(place: dict[str, Any], times_ms: Mapping[str, float | None]) -> list[dict[str, Any]]:
    return [
        {**place, "metric": f"duration_{name}", "value": ms * 1e6} for name, ms in times_ms.items() if ms is not None
    ]


TRTEXEC_LOG: Final = Kind(
    name="trtexec_log",
    title="a log of trtexec",
    # The line that it begins or ends with; its headings, its logger or its summary where people have cut that off.
    recognises=says(RUNNING, _MARKS, LOGGED, BARE),
    read=read,
    rank=15,
)
