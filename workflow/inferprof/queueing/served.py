"""What queueing needs of a case that is put under load: its curve, its policy, and the trace that it is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from inferprof.documents import Serving
from inferprof.documents.serving import ServingPolicy
from inferprof.errors import UserError
from inferprof.queueing.policy import Curve, Policy, Times
from inferprof.units import NS_PER_MS

ANSWERING: Final = "torch_eager"
ANSWERING_OPTIONS: Final = frozenset({"threads", "cuda_graph"})
"""The backend of generative models under load, and the options of a variant that it has there."""


def curve_of(document: Serving) -> Curve:
    """Its latency over the batch, as it was measured between the runs."""
    times, after_idle = (
        {int(size): np.array(taken, dtype=float) for size, taken in (curve or {}).items()}
        for curve in (document.curve, document.after_idle)
    )
    return Curve(times, after_idle)


def policy_of(asked: ServingPolicy) -> Policy:
    """As queueing has it."""
    return Policy(asked.max_batch, asked.max_delay_ms * NS_PER_MS)


def trace_of(asked: ServingPolicy) -> Times | None:
    """The moments of the trace that a policy is sent; None where it is sent none."""
    kind, _, file = asked.arrivals.partition(":")
    return read_trace(Path(file)) if kind == "trace" else None


def read_trace(path: Path) -> Times:
    """The moments of a trace, s. Raises UserError where it is none."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        moments = np.array([float(line) for line in lines if line.strip()])
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: no trace: a moment in seconds on each line ({error})") from None
    if moments.size < 2 or not np.isfinite(moments).all() or (np.diff(moments) < 0).any() or not np.ptp(moments):
        raise UserError(f"{path}: no trace: at least two moments in seconds, in ascending order")
    return moments
