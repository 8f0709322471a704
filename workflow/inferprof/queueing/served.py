"""What queueing needs of a case that was put under load: its curve and its policy."""

from __future__ import annotations

from typing import Final

import numpy as np

from inferprof.documents import Serving
from inferprof.documents.serving import ServingPolicy
from inferprof.queueing.policy import Curve, Policy

NS_PER_MS: Final = 1e6


def curve_of(document: Serving) -> Curve:
    """Its latency over the batch, as it was measured between the runs."""
    return Curve({int(size): np.array(times, dtype=float) for size, times in (document.curve or {}).items()})


def policy_of(asked: ServingPolicy) -> Policy:
    """As queueing has it."""
    return Policy(asked.max_batch, asked.max_delay_ms * NS_PER_MS)
