"""What a session of ONNX Runtime ran, as its profile tells."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import pandas as pd

from inferprof.tables.nodes.ort_facts import SessionFacts

TRT_ENGINE: Final = "TRTKernel"
"""Type of a node that is a whole TensorRT engine. ONNX Runtime adds model, hash and number, as to its name."""


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
    facts: SessionFacts | None = None

    def settled(self) -> OrtProfile:
        """Without run 0, where each node tunes itself and allocates; a profile of one run keeps it."""
        if len(self.runs) < 2:
            return self
        return replace(self, nodes=self.nodes[self.nodes["run"] > 0], runs=self.runs.iloc[1:])
