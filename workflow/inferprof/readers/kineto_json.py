"""Reads a Kineto trace (torch.profiler's export_chrome_trace) into a Timeline.

Checked against traces of torch 1.13 to 2.11 on NVIDIA and AMD: times are microseconds whatever `displayTimeUnit`
says, as integers or with nanoseconds behind the point. Flows, metadata and events that only span others (`Trace`,
`gpu_user_annotation`, `overhead`, `cuda_sync`) are no durations of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

import pandas as pd

from inferprof.errors import UserError, in_one_line
from inferprof.files import unpacked
from inferprof.tables.trace.timeline import (
    KERNEL,
    MEMCPY,
    MEMSET,
    MODULE,
    NOT_TOLD,
    OPERATOR,
    Launch,
    Timeline,
    assemble,
    thread_of,
    without_serial,
)

OPERATIONS: Final = {
    **{"kernel": KERNEL, "gpu_memcpy": MEMCPY, "gpu_memset": MEMSET},
    **{"Kernel": KERNEL, "Memcpy": MEMCPY, "Memset": MEMSET},
}
"""Category → kind; the second line is of torch up to 1.11."""
_CALLS: Final = ("cuda_runtime", "cuda_driver", "Runtime")
_ANNOTATION: Final = "user_annotation"
_COPY_NAME: Final = re.compile(r"Memcpy (\w+) \((\w+) -> (\w+)\)")
_HOST_MEMORY: Final = ("pageable", "pinned", "managed")
_NO_CORRELATION: Final = -1
GROUP: Final = "Process Group Name"
"""Of the kernel of a collective, in torch from 2.3 on: beside it the elements of a message, and their type."""
ITEM_BYTES: Final = {
    **dict.fromkeys(("Byte", "Char", "Bool"), 1),
    **dict.fromkeys(("Half", "BFloat16", "Short"), 2),
    **dict.fromkeys(("Float", "Int"), 4),
    **dict.fromkeys(("Double", "Long"), 8),
}
_OF_COLLECTIVES: Final = ["group", "message"]
PROCESS: Final = "process"
"""Of a GPU's operation, in traces of several ranks that were put together: Kineto itself tells no processes."""
_OF_OPERATIONS: Final = ["start", "end", "kind", "name", "device", "stream", "bytes", "correlation", "launched"]
_MOST_NS: Final = 1 << 62
"""So that differences of two times are 64-bit numbers."""
NOT_KINETO: Final = (AttributeError, KeyError, TypeError, ValueError, ArithmeticError)
"""What reading an event of another kind raises."""
Event = Mapping[str, Any]


class NoGpuActivity(UserError):
    """A trace of a program that used no GPU, or recorded none."""


def read_timeline(path: Path, *, within_torch: bool = False) -> Timeline:
    """The trace's GPU operations, runtime and driver calls and annotations. Raises UserError where it has none.

    within_torch: torch's operators and modules are ranges too, labelled with OPERATOR and MODULE.
    """
    return of_events(path, events(path), within_torch=within_torch)


def of_events(path: Path, recorded: Sequence[Event], *, within_torch: bool = False) -> Timeline:
    """The same of the events of a file that was read already."""
    spans = [event for event in recorded if event.get("ph") == "X"]
    try:
        _require_whole(recorded)
        timeline = _timeline(spans, within_torch=within_torch)
    except NOT_KINETO as error:
        raise not_kineto(path, error) from None
    if timeline is None:
        raise NoGpuActivity(
            f"{path} holds no GPU activity: record it with ProfilerActivity.CUDA on a machine with a GPU, "
            "around work that uses it"
        )
    return timeline


def self_times(path: Path, recorded: Sequence[Event]) -> pd.DataFrame:
    """What each call of an operator takes, without the calls in it, on the thread that computes most: its `name`,
    `start` and `ns`.

    Raises UserError for a trace that is not Kineto's.
    """
    calls: dict[Any, list[tuple[int, int, str]]] = {}
    for event in recorded:
        if event.get("ph") == "X" and event.get("cat") == "cpu_op":
            name, start, end = _named(path, event)
            calls.setdefault((event.get("pid"), event.get("tid")), []).append((start, -end, name))
    by_thread = [_own(sorted(own)) for own in calls.values()]
    return max(by_thread, key=lambda own: own["ns"].sum(), default=_own([]))


def user_ranges(path: Path, recorded: Sequence[Event]) -> pd.DataFrame:
    """The program's own ranges and the profiler's steps: `name` without its number, `start` and `end`, ns.

    Raises UserError for a trace that is not Kineto's.
    """
    spans = [event for event in recorded if event.get("ph") == "X" and event.get("cat") == _ANNOTATION]
    made = pd.DataFrame([_named(path, event) for event in spans], columns=["name", "start", "end"])
    return made.assign(name=made["name"].map(without_serial)) if len(made) else made


def _named(path: Path, event: Event) -> tuple[str, int, int]:
    try:
        return str(event["name"]), *times(event)
    except NOT_KINETO as error:
        raise not_kineto(path, error) from None


def _own(calls: Sequence[tuple[int, int, str]]) -> pd.DataFrame:
    """Of calls in order of their start, the outer first: each less those directly in it."""
    own = [-end - start for start, end, _ in calls]
    open_calls: list[int] = []
    for place, (start, end, _) in enumerate(calls):
        while open_calls and -calls[open_calls[-1]][1] <= start:
            open_calls.pop()
        if open_calls:
            own[open_calls[-1]] += end + start
        open_calls.append(place)
    names, starts = [name for _, _, name in calls], [start for start, _, _ in calls]
    return pd.DataFrame({"name": names, "start": pd.Series(starts, dtype="int64"), "ns": pd.Series(own, dtype=float)})


def not_kineto(path: Path, error: Exception) -> UserError:
    """The error of a trace with an event that Kineto does not write."""
    return UserError(
        f"{path} has an event that no Kineto trace has ({in_one_line(error)}): "
        "read a trace as torch.profiler's export_chrome_trace wrote it"
    )


def _require_whole(recorded: Sequence[Event]) -> None:
    """Raise ValueError for an operation in two events, begin and end: Kineto writes one, with its duration."""
    for event in recorded:
        if event.get("ph") in ("B", "E") and event.get("cat") in OPERATIONS:
            raise ValueError(f"a {event['cat']} of phase {event['ph']}")


def _timeline(spans: Sequence[Event], *, within_torch: bool) -> Timeline | None:
    """None where nothing is about a GPU."""
    names: dict[str, int] = {}
    launches: dict[Launch, int] = {}
    threads: dict[Any, int] = {}
    groups: dict[str, int] = {}
    operations = [event for event in spans if event.get("cat") in OPERATIONS]
    ops = pd.DataFrame([_operation(event, names, launches) for event in operations], columns=_OF_OPERATIONS)
    messages = [_message(event, groups) for event in operations]
    if groups:
        ops[_OF_COLLECTIVES] = messages
    if any(PROCESS in event.get("args", {}) for event in operations):
        ops[PROCESS] = [int(event["args"][PROCESS]) for event in operations]
    calls = [_call(event, i, names, threads) for i, event in enumerate(spans) if event.get("cat") in _CALLS]
    ranges = [
        (*times(event), _thread(threads, event), label)
        for event in spans
        if (label := _label(event, within_torch=within_torch))
    ]
    if ops.empty and not calls:
        return None
    return assemble(
        ops,
        pd.DataFrame(calls, columns=["start", "end", "thread", "name", "correlation"]),
        pd.DataFrame(ranges, columns=["start", "end", "thread", "label"]),
        list(names),
        list(launches),
    )


def _message(event: Event, groups: dict[str, int]) -> tuple[int, int]:
    """Process group and size of a collective's message, bytes, as nccl-tests counts it: the larger of in and out."""
    details = event.get("args") or {}
    if GROUP not in details:
        return NOT_TOLD, NOT_TOLD
    count = max(int(details.get("In msg nelems", 0)), int(details.get("Out msg nelems", 0)))
    size = ITEM_BYTES.get(str(details.get("dtype")), 0 if count else 1)
    return _code(groups, str(details[GROUP])), count * size if size else NOT_TOLD


def events(path: Path) -> list[Event]:
    """All events of a trace, as `document` reads it."""
    listed: list[Event] = document(path)["traceEvents"]
    return listed


def parsed(content: bytes, **how: Any) -> Any:
    """The JSON of a trace; a bare list of events, as Chrome takes it, perhaps without its end, under traceEvents.

    Raises ValueError and RecursionError for anything else."""
    if not content.lstrip().startswith(b"["):
        return json.loads(content, **how)
    try:
        return {"traceEvents": json.loads(content, **how)}
    except ValueError:
        return {"traceEvents": json.loads(content.rstrip().removesuffix(b",") + b"]", **how)}


def document(path: Path) -> dict[str, Any]:
    """A trace, decimal numbers as text. Raises UserError where it is not whole, or none of Kineto's."""
    try:
        # As text: a double would lose the nanoseconds of microseconds since the epoch.
        trace = parsed(unpacked(path), parse_float=str)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not whole JSON ({error}): the run that wrote it was cut short") from None
    listed = trace.get("traceEvents") if isinstance(trace, dict) else None
    if not isinstance(listed, list) or not all(isinstance(event, dict) for event in listed):
        raise UserError(f"{path} has no list of events under traceEvents: record it again with torch.profiler")
    assert isinstance(trace, dict)
    return trace


def _label(event: Event, *, within_torch: bool) -> str | None:
    """The label of an event that is a range; None for any other."""
    kind, name = event.get("cat"), str(event.get("name", ""))
    if kind == _ANNOTATION:
        return name if within_torch or not name.startswith(MODULE) else None
    if within_torch and kind == "cpu_op":
        return f"{OPERATOR}{name}"
    return name if within_torch and kind == "python_function" and name.startswith(MODULE) else None


def times(event: Event) -> tuple[int, int]:
    """Start and end in ns."""
    start = _nanoseconds(event["ts"])
    return start, start + _nanoseconds(event["dur"])


def _nanoseconds(microseconds: int | str) -> int:
    """Raises ValueError for what no clock shows, and TypeError for what is neither number nor text."""
    _require_number(microseconds)
    try:
        exact = Decimal(microseconds) * 1000
        shown = abs(exact) < _MOST_NS  # NaN is not even compared
    except InvalidOperation:
        shown = False
    if not shown:
        raise ValueError(f"a time of {microseconds} µs")
    return int(exact.to_integral_value())


def _whole(details: Event, key: str, otherwise: int) -> int:
    """A whole number of an event's arguments, where it has one. Raises ValueError for anything else."""
    _require_number(value := details.get(key, otherwise))
    return int(value)


def _require_number(value: Any) -> None:
    """Raise TypeError for true and false, which Python counts as 1 and 0."""
    if isinstance(value, bool):
        raise TypeError(f"{value} in place of a number")


def _size(details: Event, kind: int) -> int:
    """The bytes of an operation. Raises ValueError for fewer than none."""
    size = _whole(details, "bytes", 0 if kind == KERNEL else NOT_TOLD)
    if "bytes" in details and size < 0:
        raise ValueError(f"{size} bytes")
    return size


def _operation(event: Event, names: dict[str, int], launches: dict[Launch, int]) -> tuple[int, ...]:
    details = event.get("args") or {}
    kind = OPERATIONS[event["cat"]]
    return (
        *times(event),
        kind,
        _code(names, _operation_name(str(event["name"]), kind)),
        _whole(details, "device", 0),
        _whole(details, "stream", NOT_TOLD),
        _size(details, kind),
        _whole(details, "correlation", _NO_CORRELATION),
        _code(launches, Launch(None, *sizes)) if kind == KERNEL and (sizes := _sizes(details)) else NOT_TOLD,
    )


def _sizes(details: Event) -> list[str]:
    """Grid and block of a kernel; empty in traces of AMD GPUs, which have none."""
    there = [details[size] for size in ("grid", "block") if size in details]
    return [",".join(map(str, axes)) for axes in there] if len(there) == len(("grid", "block")) else []


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
    correlation = (event.get("args") or {}).get("correlation", _NO_CORRELATION - 1 - index)
    return (*times(event), _thread(threads, event), _code(names, str(event["name"])), int(correlation))


def _thread(threads: dict[Any, int], event: Event) -> int:
    process, thread = event.get("pid"), event.get("tid")
    if isinstance(process, int) and isinstance(thread, int):
        return thread_of(process, thread)
    return -1 - _code(threads, (process, thread))


def _code(codes: dict[Any, int], value: Any) -> int:
    return codes.setdefault(value, len(codes))
