"""Results of vLLM's benchmarks without a server: `vllm bench latency` and `vllm bench throughput --output-json`.

The keys are those of vllm/benchmarks/latency.py and throughput.py in vLLM's repository; times are in seconds.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from inferprof import stats
from inferprof.errors import UserError, in_one_line
from inferprof.files import text_of
from inferprof.readers.kind import Capture, Kind, Lack, says
from inferprof.units import NS_PER_S
from inferprof.words import counted, figure, ms

TOOL: Final = "vllm"
LATENCY: Final = re.compile(r'"avg_latency"\s*:.*"latencies"\s*:\s*\[', re.DOTALL)
THROUGHPUT: Final = re.compile(r'"elapsed_time"\s*:.*"requests_per_second"\s*:', re.DOTALL)
_PREFILL: Final = Lack("what of that is prefill", "vllm bench latency --output-len 1, which is prefill alone")
_REQUEST: Final = Lack("how long a request takes", "vllm bench serve, against vllm serve")
_TRACE: Final = Lack(
    "what the GPU does in that time", "nsys profile --trace=cuda,nvtx … in front of the same command"
)


def read(path: Path) -> Capture:
    """What the results say. Raises UserError where they are damaged."""
    try:
        document = json.loads(text_of(path))
        of = _of_latency if "avg_latency" in document else _of_throughput
        return of(document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is cut short or damaged ({in_one_line(error)}): copy it again") from None


def _number(document: Mapping[str, Any], key: str) -> float:
    """A value that is finite and above 0. Raises ValueError for another."""
    value = document[key]
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{key}: {value!r} is no number above 0")
    return float(value)


def _of_latency(document: Mapping[str, Any]) -> Capture:
    """Batches one after the other, each from its prompts to its last token."""
    times = [NS_PER_S * _number({"latencies": seconds}, "latencies") for seconds in document["latencies"]]
    if not times:
        mean = ms(NS_PER_S * _number(document, "avg_latency"))
        return Capture(TOOL, ["vllm bench latency", f"a batch takes {mean}, the mean"], lacks=[_PREFILL, _TRACE])
    took = f"a batch takes {ms(stats.summarize(times).median)}, the median of {len(times)}"
    return Capture(TOOL, ["vllm bench latency", took], notes=list(_of_times(times)), lacks=[_PREFILL, _TRACE])


def _of_times(times: list[float]) -> Iterator[str]:
    """How far the batches' times differ, ns."""
    summary = stats.summarize(times)
    if summary.interval:
        low, high = summary.interval
        yield f"95 % interval of the median: {ms(low)} to {ms(high)}"
    tail = f", p90 {ms(summary.p90)}" if summary.p90 else ""
    yield f"fastest {ms(summary.min)}, mean {ms(summary.mean)}{tail}, slowest {ms(summary.max)}"
    if (change := stats.drifted(times)) is not None:
        yield f"from the first to the last they changed by {change:+.1%}: not settled, measure longer"


def _of_throughput(document: Mapping[str, Any]) -> Capture:
    """All requests at once."""
    requests, seconds = int(_number(document, "num_requests")), _number(document, "elapsed_time")
    per_s = {unit: _number(document, f"{unit}_per_second") for unit in ("requests", "tokens")}
    rates = f"{figure(per_s['requests'])} requests/s, {figure(per_s['tokens'])} tokens/s, prompts and answers"
    each = _number(document, "total_num_tokens") / requests
    return Capture(
        TOOL,
        ["vllm bench throughput", rates],
        notes=[
            f"{counted(requests, 'request')} in {figure(seconds)} s, all sent at once, {figure(each)} tokens each"
        ],
        lacks=[_REQUEST, _TRACE],
    )


VLLM_OFFLINE: Final = Kind(
    name="vllm_offline",
    title="results of vLLM's benchmarks without a server",
    recognises=says(LATENCY, THROUGHPUT),
    read=read,
    rank=14,
)
