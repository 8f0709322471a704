"""Reads a Kineto trace (torch.profiler's export_chrome_trace) into a Timeline.

Checked against traces of torch 1.13 to 2.11 on NVIDIA and AMD: times are microseconds whatever `displayTimeUnit`
says, as integers or with nanoseconds behind the point. Flows, metadata and events that only span others (`Trace`,
`gpu_user_annotation`, `overhead`, `cuda_sync`) are no durations of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pandas as pd

from inferprof.errors import UserError
from inferprof.files import opened
from inferprof.tables.trace.timeline import KERNEL, MEMCPY, MEMSET, NOT_TOLD, Timeline, assemble, thread_of

_OPERATIONS: Final = {"kernel": KERNEL, "gpu_memcpy": MEMCPY, "gpu_memset": MEMSET}
_CALLS: Final = ("cuda_runtime", "cuda_driver")
_ANNOTATION: Final = "user_annotation"
OPERATOR: Final = "op:"
"""How the range of an operator of torch is labelled, in front of its name."""
MODULE: Final = "nn.Module: "
"""How the range of a module of torch is: by Kineto, where it records Python's stack, and by our own hooks."""
_COPY_NAME: Final = re.compile(r"Memcpy (\w+) \((\w+) -> (\w+)\)")
_HOST_MEMORY: Final = ("pageable", "pinned", "managed")
_NO_CORRELATION: Final = -1
Event = Mapping[str, Any]


def read_timeline(path: Path, *, within_torch: bool = False) -> Timeline:
    """The trace's GPU operations, runtime and driver calls and annotations. Raises UserError where it has none.

    within_torch: torch's operators and modules are ranges too, labelled with OPERATOR and MODULE.
    """
    spans = [event for event in events(path) if event.get("ph") == "X"]
    names: dict[str, int] = {}
    threads: dict[Any, int] = {}
    ops = pd.DataFrame(
        [_operation(event, names) for event in spans if event.get("cat") in _OPERATIONS],
        columns=["start", "end", "kind", "name", "device", "stream", "bytes", "correlation"],
    )
    calls = pd.DataFrame(
        [_call(event, i, names, threads) for i, event in enumerate(spans) if event.get("cat") in _CALLS],
        columns=["start", "end", "thread", "name", "correlation"],
    )
    ranges = pd.DataFrame(
        [
            (*times(event), _thread(threads, event), label)
            for event in spans
            if (label := _label(event, within_torch=within_torch))
        ],
        columns=["start", "end", "thread", "label"],
    )
    if ops.empty and calls.empty:
        raise UserError(
            f"{path} holds no GPU activity: record it with ProfilerActivity.CUDA on a machine with a GPU, "
            "around work that uses it"
        )
    return assemble(ops, calls, ranges, list(names))


def events(path: Path) -> Iterable[Event]:
    """All events of a trace, decimal numbers as text. Raises UserError where it is not whole."""
    with opened(path) as file:
        try:
            # As text: a double would lose the nanoseconds of microseconds since the epoch.
            trace = json.load(file, parse_float=str)
        except (ValueError, EOFError) as error:
            raise UserError(f"{path} is not whole JSON ({error}): the run that wrote it was cut short") from None
    found: Iterable[Event] = trace["traceEvents"]
    return found


def _label(event: Event, *, within_torch: bool) -> str | None:
    """The label of an event that is a range; None for any other."""
    kind, name = event.get("cat"), str(event["name"])
    if kind == _ANNOTATION:
        return name if within_torch or not name.startswith(MODULE) else None
    if within_torch and kind == "cpu_op":
        return f"{OPERATOR}{name}"
    return name if within_torch and kind == "python_function" and name.startswith(MODULE) else None


def times(event: Event) -> tuple[int, int]:
    """Start and end in ns."""
    start = _nanoseconds(event["ts"])
    return start, start + _nanoseconds(event.get("dur", 0))


def _nanoseconds(microseconds: int | str) -> int:
    if isinstance(microseconds, int):
        return microseconds * 1000
    return int((Decimal(microseconds) * 1000).to_integral_value())


def _operation(event: Event, names: dict[str, int]) -> tuple[int, ...]:
    details = event.get("args", {})
    kind = _OPERATIONS[event["cat"]]
    return (
        *times(event),
        kind,
        _code(names, _operation_name(str(event["name"]), kind)),
        int(details.get("device", 0)),
        int(details.get("stream", NOT_TOLD)),
        int(details.get("bytes", 0 if kind == KERNEL else NOT_TOLD)),
        int(details.get("correlation", _NO_CORRELATION)),
    )


def _operation_name(name: str, kind: int) -> str:
    """Copies and memsets as the nsys reader names them: `HtoD pageable`, `memset`."""
    if kind == MEMSET:
        return "memset"
    if kind == MEMCPY and (match := _COPY_NAME.match(name)):
        direction, *ends = match.groups()
        memory = next((end.lower() for end in ends if end.lower() in _HOST_MEMORY), None)
        return f"{direction} {memory}" if memory else direction
    return name


def _call(event: Event, index: int, names: dict[str, int], threads: dict[Any, int]) -> tuple[int, ...]:
    # A call without a correlation launched nothing; it needs one of its own, since it is no second log of another.
    correlation = event.get("args", {}).get("correlation", _NO_CORRELATION - 1 - index)
    return (*times(event), _thread(threads, event), _code(names, str(event["name"])), int(correlation))


def _thread(threads: dict[Any, int], event: Event) -> int:
    process, thread = event.get("pid"), event.get("tid")
    if isinstance(process, int) and isinstance(thread, int):
        return thread_of(process, thread)
    return -1 - _code(threads, (process, thread))


def _code(codes: dict[Any, int], value: Any) -> int:
    return codes.setdefault(value, len(codes))
