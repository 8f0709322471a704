"""Reads ONNX Runtime's own profile (SessionOptions.enable_profiling) into the nodes and the runs of a session.

Checked against files of ONNX Runtime 0.4 to 1.31 with the CPU, MKLDNN, CUDA and TensorRT providers. Times are
microseconds. `*_fence_before` and `*_fence_after` of old versions are no work of a node, and loading and
`SequentialExecutor::Execute` span others; events of the GPU (category Kernel) are left to nsys and Kineto.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from inferprof.errors import UserError
from inferprof.tables.nodes import ort_events, ort_facts
from inferprof.tables.nodes.ort_events import NOT_TOLD, Event

TRT_ENGINE: Final = "TRTKernel"
"""Type of a node that is a whole TensorRT engine. ONNX Runtime adds model, hash and number, as to its name."""
_NODE_COLUMNS: Final = ("start", "duration", "name", "op_type", "provider", "process", "thread", "bytes", "types")


@dataclass(frozen=True)
class OrtProfile:
    """What a session ran. `runs`: duration in ns, by run. `facts`: None in a profile of a session that is not ours.

    nodes: run, start and duration (ns on the session's clock), name, op_type, provider, process and thread (ids of
    the system), bytes of the outputs (missing where the file does not say), types (of the inputs, by `, `).
    Runs are those that came to their end, counted from 0. A file without any has one unfinished run, 0, and empty
    `runs`. Nodes may lack a name; it is empty then.
    """

    nodes: pd.DataFrame
    runs: pd.Series[int]
    facts: ort_facts.SessionFacts | None = None

    def settled(self) -> OrtProfile:
        """Without run 0, where each node tunes itself and allocates; a profile of one run keeps it."""
        if len(self.runs) < 2:
            return self
        return replace(self, nodes=self.nodes[self.nodes["run"] > 0], runs=self.runs.iloc[1:])


def read_profile(path: Path) -> OrtProfile:
    """The profile of a session whose runs follow each other. Raises UserError where it holds no node."""
    events = ort_events.read(path)
    spans = sorted((int(e["ts"]), int(e["dur"])) for e in events if e["name"] == "model_run")
    starts, durations = np.array(spans, np.int64).reshape(-1, 2).T
    nodes = pd.DataFrame([_node(event) for event in events if ort_events.is_node(event)], columns=_NODE_COLUMNS)
    nodes["run"] = np.searchsorted(starts, nodes["start"], side="right") - 1 if spans else 0
    if spans:  # behind the last end: a run that the process did not survive
        nodes = nodes[nodes["start"] < starts[-1] + durations[-1]]
    if nodes.empty:
        raise UserError(f"{path} holds no node's time: the session ended before it ran one")
    nodes["start"] *= 1000
    return OrtProfile(nodes.reset_index(drop=True), pd.Series(durations * 1000), ort_facts.found(events))


def _node(event: Event) -> tuple[Any, ...]:
    told = event["args"]
    op_type = str(told.get("op_name", NOT_TOLD))
    size = told.get("output_size")
    return (
        int(event["ts"]),
        int(event["dur"]) * 1000,
        ort_events.name_of(event),
        TRT_ENGINE if op_type.startswith(TRT_ENGINE) else op_type,
        ort_events.provider_of(event),
        int(event["pid"]),
        int(event["tid"]),
        float("nan") if size is None else int(size),
        ", ".join(name for tensor in told.get("input_type_shape", ()) for name in tensor),
    )
