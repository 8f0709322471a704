"""What the outputs of fp32 themselves say against a verdict that is drawn from a comparison with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from inferprof.documents.graph import NAN_IN_FP32

Array = np.ndarray[Any, Any]


def cautioned(outcome: str, reason: str, expected: Mapping[str, Array]) -> tuple[str, str]:
    """The outcome and reason of a comparison with these outputs: no plain pass where fp32 itself gives NaN.

    NaN is no result of any model. Infinite values may be one, as in a mask, so of these only the reason tells.
    """
    nans = {name: int(np.isnan(array).sum()) for name, array in expected.items()}
    if skipped := sum(array.size - int(np.isfinite(array).sum()) for array in expected.values()):
        reason += f"; {skipped:,} values of fp32 are NaN or infinite, and not compared"
    if not any(nans.values()):
        return outcome, reason
    where = ", ".join(
        f"{count:,} of {expected[name].size:,} values of output {name}" for name, count in nans.items() if count
    )
    return "warn" if outcome == "pass" else outcome, f"{NAN_IN_FP32} in {where}: {reason}"
