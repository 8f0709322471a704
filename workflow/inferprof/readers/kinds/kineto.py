"""Traces of torch.profiler, of NVIDIA's and AMD's GPUs."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from inferprof.errors import UserError
from inferprof.files import unpacked
from inferprof.findings import Total
from inferprof.readers.kind import WHOLE, Capture, Head, Kind, Lack, waits
from inferprof.readers.kinds.nsys_text import PROGRESS
from inferprof.words import counted, ms, spread

if TYPE_CHECKING:
    from inferprof.readers.kineto_ranks import Clock
    from inferprof.tables.trace.iteration_choice import Choice

SHOWN: Final = 6
_JSON: Final = re.compile(r'\{|\[\s*(?:[\[{\]"]|-?[\d.eE+-]+\s*[,\]]|true|false|null|$)')
"""How JSON begins; a line of a log may begin in a bracket, as with `[I]`."""
_EVENTS: Final = re.compile(r"\[\s*\{")
_OF_TORCH: Final = re.compile(
    r'"cat"\s*:\s*"(?:kernel|gpu_memcpy|gpu_memset|cuda_runtime|cuda_driver|cpu_op|user_annotation|python_function)"',
    re.IGNORECASE,
)
"""Kinds of events that torch.profiler writes, and others in Chrome's format do not."""
TIMED: Final = Lack("how long it takes without a profiler, which slows each call", "the same loop, timed without it")
RECORD: Final = Lack(
    "what a GPU did, where one was used",
    "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]), without experimental_config",
)


def recognises(head: Head) -> bool:
    """Whether it is a trace. Raises UserError for other JSON, which no kind that is asked before takes."""
    text = head.text
    if not _JSON.match(text) or PROGRESS.match(text):
        return False
    if text.startswith("[") and _EVENTS.match(text) and _OF_TORCH.search(text):
        return True
    if text.startswith("["):
        raise UserError(
            f"{head.path} is a JSON list that no tool here writes: a Kineto trace comes from torch.profiler's "
            "export_chrome_trace, an ONNX Runtime profile from SessionOptions.enable_profiling"
        )
    if "traceEvents" in text or "traceEvents" in _document(head.path):
        return True
    raise UserError(
        f"{head.path} is JSON without traceEvents: give a trace of torch.profiler's export_chrome_trace; of a "
        "study, `inferprof report`"
    )


def _document(path: Path) -> Any:
    from inferprof.readers import kineto_json

    try:
        return kineto_json.parsed(unpacked(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not whole JSON ({error}): the run that wrote it was cut short") from None


def read(path: Path) -> Capture:
    """The timeline, and the GPUs that it is of. Raises UserError where nothing of a GPU is in it."""
    from inferprof.readers import kineto_json

    events = kineto_json.events(path)
    try:
        timeline = kineto_json.of_events(path, events)
    except kineto_json.NoGpuActivity:
        if (times := kineto_json.self_times(path, events)).empty:
            raise
        return _on_cpu(times, kineto_json.user_ranges(path, events))
    if timeline.ops.empty:
        return Capture("kineto", ["torch.profiler (Kineto)"], failure=_no_operation(_document(path)), lacks=(RECORD,))
    devices = timeline.ops["device"].unique().tolist()
    ran = ["torch.profiler (Kineto)", *_gpus(_document(path), devices)]
    within = functools.partial(kineto_json.of_events, path, events, within_torch=True)
    lacks = (*waits(timeline, RECORD.command), TIMED)
    majors = [gpu["computeMajor"] for gpu in _properties(_document(path), devices) if "computeMajor" in gpu]
    major = min((int(major) for major in majors if str(major).isdecimal()), default=None)
    return Capture("kineto", ran, timeline=timeline, within=within, lacks=lacks, compute_major=major)


def join(paths: Sequence[Path]) -> Capture | None:
    """Several ranks of one program on one clock; None where the files do not say that they are that."""
    from inferprof.readers import kineto_ranks

    ranks = kineto_ranks.joined(paths)
    if ranks is None:
        return None
    devices = [gpu for path in paths for gpu in _gpus(_document(path), [])]
    listed = ", ".join(map(str, ranks.ranks))
    ran = ["torch.profiler (Kineto)", f"ranks {listed} of {ranks.world}", *dict.fromkeys(devices)]
    notes = [_clock(clock) for clock in ranks.clocks]
    return Capture("kineto", ran, timeline=ranks.timeline, notes=notes, lacks=(TIMED,))


def _clock(clock: Clock) -> str:
    """What was done to the clock of a rank."""
    spread = f"by the ends of {clock.collectives:,} collectives, which spread by {clock.spread / 1e3:.1f} µs"
    if clock.moved:
        return f"the clock of rank {clock.rank} was {clock.moved / 1e3:+,.1f} µs off and is moved, {spread}"
    return f"the clock of rank {clock.rank} agrees, {spread}"


def _on_cpu(times: pd.DataFrame, ranges: pd.DataFrame, asked: str | None = None) -> Capture:
    """The operators of a trace without a GPU, by the time that each takes itself; in its steps, where it has any."""
    from inferprof.readers.kinds.ort import operators

    choice = _steps(times, ranges, asked)
    spans = ranges[ranges["name"] == choice.by] if choice else ranges[:0]
    inside = times[_in_any(times, spans)] if choice else times
    count = len(spans) or 1
    summed = inside.groupby("name")["ns"].sum().sort_values(ascending=False, kind="stable") / count
    whole = float(summed.sum())
    parts = {str(name): float(ns) for name, ns in summed.head(SHOWN).items()}
    parts["other operators"] = whole - sum(parts.values())
    if choice and (rest := (choice.mean_ns or 0.0) - whole) > 0:
        parts["between the operators"] = rest
    of = "an iteration under a profiler" if choice else "the operators, each without those that it calls"
    return Capture(
        "kineto",
        [
            "torch.profiler (Kineto)",
            "no GPU",
            f"{counted(len(inside), 'call')} of {counted(len(summed), 'operator')}",
        ],
        of_range=functools.partial(_on_cpu, times, ranges),
        steps=_told(choice, spans) if choice else (),
        parts=parts,
        total=Total(sum(parts.values()), of) if whole else None,
        calls={} if choice else {str(name): float(n) for name, n in times.groupby("name").size().items()},
        answers=list(operators(summed / (whole or 1.0), "kineto")),
        lacks=(TIMED, RECORD),
    )


def _steps(times: pd.DataFrame, ranges: pd.DataFrame, asked: str | None) -> Choice | None:
    """The range that counts as an iteration, by the rules for traces of a GPU, with the operators' time in place of
    its; none where there is none. Raises UserError for one that is asked for and not there."""
    from inferprof.tables.trace import iteration_choice
    from inferprof.tables.trace.iteration_choice import Candidate, Choice
    from inferprof.tables.trace.kernel_compare import ITERATION, unknown_range
    from inferprof.tables.trace.timeline import without_serial

    if asked == WHOLE:
        return None
    whole = float(times["ns"].sum()) or 1.0
    candidates = []
    for name, own in ranges.groupby("name"):
        share = float(times.loc[_in_any(times, own), "ns"].sum()) / whole
        candidates.append(Candidate(str(name), len(own), float((own["end"] - own["start"]).mean()), share))
    by_name = {candidate.name: candidate for candidate in candidates}
    if asked is not None and without_serial(asked) not in by_name:
        raise unknown_range(asked, {name: candidate.count for name, candidate in by_name.items()})
    own_names = [without_serial(asked)] if asked is not None else [ITERATION, iteration_choice.STEP]
    of_program = [c for c in candidates if c.share and not iteration_choice.LIBRARY.match(c.name)]
    of_program.sort(key=lambda candidate: (-candidate.share, candidate.count, candidate.name))
    repeated = [candidate for candidate in of_program if candidate.count > 1]  # one around all may hold any number
    chosen = next((by_name[name] for name in own_names if name in by_name), iteration_choice.best(repeated, 0.0))
    if chosen is None:
        return None
    why = (
        "asked for with --iteration"
        if asked is not None
        else f"around {100 * chosen.share:.0f} % of the operators' time"
    )
    others = tuple(candidate for candidate in of_program if candidate is not chosen)
    return Choice(chosen.name, f"the range {chosen.name}, {why}", chosen.count, chosen.mean_ns, others)


def _in_any(times: pd.DataFrame, spans: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which calls begin in any of the ranges."""
    begins, ends = spans["start"].sort_values().to_numpy(), spans["end"].sort_values().to_numpy()
    starts = times["start"].to_numpy()
    inside: np.ndarray[Any, np.dtype[np.bool_]] = begins.searchsorted(starts, "right") > ends.searchsorted(
        starts, "right"
    )
    return inside


def _told(choice: Choice, spans: pd.DataFrame) -> list[str]:
    """How often, how long and from where to where, and which other ranges there are."""
    took = spans["end"] - spans["start"]
    listed = "; ".join(f"{c.name} {c.count} × {ms(c.mean_ns)}" for c in choice.candidates[:SHOWN])
    said = f"{choice.count} × {ms(choice.mean_ns or 0.0)}{spread(took.tolist())}: {choice.reason}"
    return [said, *([f"other ranges (how often, how long): {listed}"] if listed else [])]


def _no_operation(document: Any) -> str:
    """What a trace holds in place of kernels."""
    counters = sum(event.get("cat") == "cuda_profiler_range" for event in document["traceEvents"])
    other = (
        f"; it holds {counted(counters, 'range')} with counters of CUPTI, which stand for kernels and are not read"
        if counters
        else ""
    )
    return f"the trace holds calls that launch, and no operation of a GPU{other}"


def _gpus(document: Any, used: list[int]) -> list[str]:
    """The names of the GPUs that were used; some traces have none, or empty ones."""
    return list(dict.fromkeys(str(gpu["name"]) for gpu in _properties(document, used) if gpu.get("name")))


def _properties(document: Any, used: list[int]) -> list[dict[str, Any]]:
    """What a trace says of the GPUs that were used."""
    properties = document.get("deviceProperties") if isinstance(document, dict) else None
    listed = properties if isinstance(properties, list) else []
    return [gpu for gpu in listed if isinstance(gpu, dict) and gpu.get("id", used[0] if used else 0) in used]


KINETO: Final = Kind(
    name="kineto", title="a Kineto trace", recognises=recognises, read=read, join=join, tool="kineto", rank=90
)
