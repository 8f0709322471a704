"""Reads ONNX Runtime's own profile (SessionOptions.enable_profiling) into the nodes and the runs of a session.

Checked against files of ONNX Runtime 0.4 to 1.31 with the CPU, MKLDNN, CUDA and TensorRT providers. Times are
microseconds. `*_fence_before` and `*_fence_after` of old versions are no work of a node, and loading and
`SequentialExecutor::Execute` span others; events of the GPU (category Kernel) are left to nsys and Kineto.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from inferprof.errors import UserError, in_one_line
from inferprof.readers import ort_events
from inferprof.readers.ort_events import NOT_TOLD, Event
from inferprof.tables.nodes import ort_facts
from inferprof.tables.nodes.providers import TRT_ENGINE, OrtProfile

_SESSION: Final = "session_initialization"
"""Once in a session."""
_SPAN_COLUMNS: Final = ("start", "end", "process", "thread")
_AT_ONCE: Final = "runs overlap, and nodes on other threads than theirs are of any of them: profile one run at a time"
_NODE_COLUMNS: Final = ("start", "duration", "name", "op_type", "provider", "process", "thread", "bytes", "types")


def read_profile(path: Path, *, cut: bool = False) -> OrtProfile:
    """The profile of a session; `cut`: also of one that was killed, as far as it is whole.

    Raises UserError where it holds no node, several sessions, or nodes of runs that are not told.
    """
    events = ort_events.read(path, cut=cut)
    if (sessions := sum(event["name"] == _SESSION for event in events)) > 1:
        raise UserError(
            f"{path} holds {sessions} sessions, whose runs are of different models: give each in a file of its own"
        )
    runs = pd.DataFrame([_span(event) for event in events if event["name"] == "model_run"], columns=_SPAN_COLUMNS)
    runs = runs.sort_values("start", kind="stable", ignore_index=True)
    try:
        nodes = pd.DataFrame([_node(event) for event in events if ort_events.is_node(event)], columns=_NODE_COLUMNS)
        facts = ort_facts.found(events)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path} is not as ONNX Runtime writes it ({type(error).__name__}: {in_one_line(error)})"
        ) from None
    nodes["run"] = _runs_of(path, nodes, runs) if len(runs) else 0
    if len(runs):  # behind the last end: a run that the process did not survive
        nodes = nodes[nodes["start"] < runs["end"].max()]
    if nodes.empty:
        raise UserError(f"{path} holds no node's time: the session ended before it ran one")
    nodes["start"] *= 1000
    return OrtProfile(nodes.reset_index(drop=True), (runs["end"] - runs["start"]) * 1000, facts)


def _span(event: Event) -> tuple[int, int, int, int]:
    return int(event["ts"]), int(event["ts"]) + int(event["dur"]), int(event["pid"]), int(event["tid"])


def _runs_of(path: Path, nodes: pd.DataFrame, runs: pd.DataFrame) -> np.ndarray:
    """The run of each node: the last that began before it; of runs at the same time that of its own thread."""
    if not _overlap(runs):
        return np.searchsorted(runs["start"], nodes["start"], side="right") - 1
    run = np.full(len(nodes), -1)
    for thread, own in runs.groupby(["process", "thread"]):
        if _overlap(own):
            raise UserError(f"{path}: {_AT_ONCE}")
        here = (nodes[["process", "thread"]] == list(thread)).all(axis=1).to_numpy()
        place = np.searchsorted(own["start"], nodes.loc[here, "start"], side="right") - 1
        run[here] = np.where(place >= 0, own.index.to_numpy()[place], -1)
    elsewhere = nodes.loc[run < 0, "start"]
    if ((elsewhere >= runs["start"].min()) & (elsewhere < runs["end"].max())).any():
        raise UserError(f"{path}: {_AT_ONCE}")
    return run


def _overlap(runs: pd.DataFrame) -> bool:
    """Whether one begins before another has ended; by more than rounding."""
    ended = np.maximum.accumulate(runs["end"].to_numpy())[:-1]
    return bool((runs["start"].to_numpy()[1:] < ended - 1).any())


def _node(event: Event) -> tuple[Any, ...]:
    args = event["args"]
    op_type = str(args.get("op_name", NOT_TOLD))
    size, shapes = args.get("output_size"), args.get("input_type_shape")
    tensors = shapes if isinstance(shapes, list) else []  # `[{"float": [1, 8]}]`; a version may say it otherwise
    return (
        int(event["ts"]),
        int(event["dur"]) * 1000,
        ort_events.name_of(event),
        TRT_ENGINE if op_type.startswith(TRT_ENGINE) else op_type,
        ort_events.provider_of(event),
        int(event["pid"]),
        int(event["tid"]),
        float("nan") if size is None else int(size),
        ", ".join(name for tensor in tensors for name in tensor),
    )
