"""What is wrong inside a kernel, by its counters: a verdict per launch and fault, with the numbers behind it.

Thresholds are those of NVIDIA's own rules where a rule has one (files `sections/*.py` of an installation of Nsight
Compute, 2023.2 and later; what they count is in https://docs.nvidia.com/nsight-compute/ProfilingGuide/), else ours,
with the reason beside them. A counter that the capture lacks makes a fault `not assessed`, never clear.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Final, Literal, NamedTuple

import pandas as pd

from inferprof.tables.metrics import SECTOR_BYTES
from inferprof.tables.schema import by_launch
from inferprof.tables.trace.kernel_class import EITHER_FP8, DType, KernelClass, classify

FaultName = Literal[
    "bank_conflicts",
    "uncoalesced",
    "spills",
    "divergence",
    "atomics",
    "l2_misses",
    "tail",
    "small_grid",
    "low_occupancy",
    "tensor_cores_unused",
]
Verdict = Literal["found", "clear", "not assessed"]

SHARED_EXCESS_PERCENT: Final = 10.0
"""Rule SharedMemoryConflicts: `bank_conflicts_threshold = 10.0` percent of the wavefronts."""
GLOBAL_EXCESS_PERCENT: Final = 10.0
"""Rule UncoalescedGlobalAccess reports any excess; ours is the share from which bank conflicts count."""
SPILL_PERCENT: Final = 1.0
"""Ours: of the requests for global and local memory. A spill outside of the kernel's loops stays below it."""
THREADS_PER_INSTRUCTION: Final = 24.0
"""Rule ThreadDivergence: `threshold = 24` of 32, with and without threads that a predicate switches off."""
ATOMIC_PERCENT: Final = 10.0
"""Ours, of the L2's sectors; no rule of NVIDIA's looks at it. A block that adds its sum up once stays far below."""
L2_HIT_PERCENT: Final = 50.0
"""Ours: below it most of what the L2 is asked for comes from device memory."""
DRAM_BUSY_PERCENT: Final = 50.0
"""Rule MemoryCacheAccessPattern looks at device memory from 50 % of its peak on: below it misses cost little."""
READ_AGAIN: Final = 2.0
"""Ours: device memory is read this many times over, so that half of the traffic and more would be saved."""
TAIL_PERCENT: Final = 20.0
"""Rule LaunchConfiguration, tail effect: `speedup_threshold = 20` percent of the kernel's time."""
OCCUPANCY_PERCENT: Final = 50.0
"""Ours. A kernel that keeps a unit busy needs no more warps, so that it counts below BUSY_PERCENT alone."""
BUSY_PERCENT: Final = 60.0
"""Rule SOLBottleneck: less than 60 % of the peak of SMs and of memory means that latency rules."""
TENSOR_PERCENT: Final = 10.0
"""Ours, of the tensor pipe: from here on it is tensor cores. Ordinary half-precision arithmetic runs on it too (SASS
HFMA2.MMA; 3.9 % in a GELU of an H100 capture)."""

_TENSOR_CLASSES: Final[tuple[KernelClass, ...]] = ("gemm", "attention", "convolution")
_TENSOR_DTYPES: Final[tuple[DType, ...]] = ("tf32", "fp16", "bf16", "fp8", "mxfp8", EITHER_FP8, "fp4", "int8", "int4")
_DESCRIBED: Final = ("launch", "name", "duration_total")
_TENSOR_OPS: Final = "tensor_ops_"
_MUST_READ: Final = "bytes that the kernel must read"
_BLOCK_LIMITS: Final = (
    "block_limit_registers",
    "block_limit_shared_memory",
    "block_limit_warps",
    "block_limit_blocks",
)
"""What every ncu tells; newer ones also tell of the barriers."""

Counters = Mapping[str, float | str]
"""Metric → value or text of one kernel launch, and under `name` the kernel's name."""


@dataclass(frozen=True)
class Finding:
    """The verdict on one fault, why, and the numbers that it was drawn from (metrics, and shares in percent)."""

    fault: FaultName
    verdict: Verdict
    reason: str
    evidence: Mapping[str, float] = field(default_factory=dict)


def judge(counters: Counters, must_read: float | None = None) -> list[Finding]:
    """All faults of one launch, in the order of FaultName.

    must_read: bytes that the kernel reads at least (its inputs, each byte once), without which a stream cannot be
    told from data that are read again.
    """
    measured = dict(counters) if must_read is None else {**counters, _MUST_READ: must_read}
    return [_finding(fault, check, measured) for fault, check in _CHECKS.items()]


def of_launches(frame: pd.DataFrame, must_read: Mapping[str, float] | None = None) -> pd.DataFrame:
    """One case's tidy table → one row per launch and fault.

    Columns: `launch`, `name`, `duration_total` (ns), `fault`, `verdict`, `reason`, `evidence` (a dict). must_read:
    kernel name → bytes, as in `judge`.
    """
    rows = []
    for launch in by_launch(frame).to_dict("records"):
        counters = {str(metric): value for metric, value in launch.items() if not pd.isna(value)}
        described = {column: counters.get(column) for column in _DESCRIBED}
        for finding in judge(counters, (must_read or {}).get(str(launch["name"]))):
            rows.append({**described, **vars(finding)})
    return pd.DataFrame(rows, columns=[*_DESCRIBED, *(column.name for column in fields(Finding))])


class _Judged(NamedTuple):
    present: bool
    reason: str
    evidence: dict[str, float]


class _Missing(LookupError):
    """What a check needs and does not have."""


def _finding(fault: FaultName, check: Callable[[Counters], _Judged], counters: Counters) -> Finding:
    try:
        judged = check(counters)
    except _Missing as missing:
        return Finding(fault, "not assessed", f"needs {missing}")
    return Finding(fault, "found" if judged.present else "clear", judged.reason, judged.evidence)


def _numbers(counters: Counters, *metrics: str) -> dict[str, float]:
    """The numbers of these metrics, in their order. Raises _Missing with all that are not there."""
    if missing := [metric for metric in metrics if metric not in counters]:
        raise _Missing(", ".join(missing))
    return {metric: float(counters[metric]) for metric in metrics}


def _percent(part: float, whole: float) -> float:
    """0 where there is nothing to have a part of."""
    return 100 * part / whole if whole else 0.0


def _excess(counters: Counters, of: str, threshold: float, unused: str, needless: str) -> _Judged:
    """Shared memory in passes, global memory in sectors: how many of those that were made a better pattern saves."""
    numbers = _numbers(counters, of, f"{of}_excess")
    total, excess = numbers.values()
    if not total:
        return _Judged(False, unused, numbers)
    share = _percent(excess, total)
    evidence = {**numbers, "excess_percent": share}
    return _Judged(share >= threshold, f"{share:.1f} % of {total:,.0f} {needless}", evidence)


def _spills(counters: Counters) -> _Judged:
    """Older ncu versions count local memory alone, which arrays with a computed index use too."""
    if "spill_requests" not in counters:
        local = _numbers(counters, "local_bytes_loaded", "local_bytes_stored")
        if any(local.values()):
            raise _Missing("spill_requests: local memory is used, by spills or by arrays with a computed index")
        return _Judged(False, "no local memory is used", local)
    spills = _numbers(counters, "spill_requests")
    if not any(spills.values()):
        return _Judged(False, "no register is spilled", spills)
    numbers = spills | _numbers(counters, "global_load_requests", "global_store_requests")
    share = _percent(numbers["spill_requests"], sum(numbers.values()))
    reason = f"{share:.1f} % of the requests for global and local memory are spilled registers"
    return _Judged(share >= SPILL_PERCENT, reason, {**numbers, "spill_percent": share})


def _divergence(counters: Counters) -> _Judged:
    numbers = _numbers(counters, "threads_per_instruction", "threads_per_instruction_predicated")
    active, unpredicated = numbers.values()
    reason = f"{active:.1f} of 32 threads active per instruction, {unpredicated:.1f} not switched off by a predicate"
    return _Judged(min(active, unpredicated) < THREADS_PER_INSTRUCTION, reason, numbers)


def _atomics(counters: Counters) -> _Judged:
    """Where all threads of a warp add to one number, their request is one sector; 32 numbers in a row are four."""
    numbers = _numbers(counters, "l2_atomic_sectors", "l2_reduction_sectors", "l2_bytes")
    sectors = numbers["l2_atomic_sectors"] + numbers["l2_reduction_sectors"]
    share = _percent(sectors * SECTOR_BYTES, numbers["l2_bytes"])
    reason = f"{share:.1f} % of the L2's sectors are atomics"
    if sectors and {"global_atomics", "global_reductions"} <= counters.keys():
        numbers |= _numbers(counters, "global_atomics", "global_reductions")
        requests = numbers["global_atomics"] + numbers["global_reductions"]
        reason += f", {sectors / requests:.1f} sectors per warp's request" if requests else ""
    return _Judged(share >= ATOMIC_PERCENT, reason, {**numbers, "atomic_percent": share})


def _l2_misses(counters: Counters) -> _Judged:
    numbers = _numbers(counters, "l2_hit_rate", "dram_throughput")
    hits, busy = numbers.values()
    reason = f"L2 hits {hits:.0f} %, device memory {busy:.0f} % busy"
    if hits >= L2_HIT_PERCENT or busy < DRAM_BUSY_PERCENT:
        return _Judged(False, reason, numbers)
    read, must_read = _numbers(counters, "dram_bytes_read", _MUST_READ).values()
    times = read / must_read
    evidence = {**numbers, "dram_bytes_read": read, "times_read": times}
    return _Judged(times >= READ_AGAIN, f"{reason}, read {times:.1f} times over", evidence)


def _tail(counters: Counters) -> _Judged:
    """The waste if all blocks take equally long, where the SMs were idle for as much."""
    numbers = _numbers(counters, "blocks", "sms", *_BLOCK_LIMITS)
    limits = [numbers[limit] for limit in _BLOCK_LIMITS]
    if "block_limit_barriers" in counters:
        limits.append(float(counters["block_limit_barriers"]))
    waves = numbers["blocks"] / (numbers["sms"] * min(limits))
    waste = _percent(math.ceil(waves) - waves, math.ceil(waves))
    evidence = {"blocks": numbers["blocks"], "waves": waves, "tail_waste": waste}
    reason = f"{waves:.2f} waves leave {waste:.0f} % of the SMs' time empty"
    if waves <= 1 or waste < TAIL_PERCENT:
        return _Judged(False, reason, evidence)
    idle = 100 - _numbers(counters, "sm_active")["sm_active"]
    return _Judged(idle >= TAIL_PERCENT, f"{reason}; idle for {idle:.0f} %", {**evidence, "sm_idle": idle})


def _small_grid(counters: Counters) -> _Judged:
    numbers = _numbers(counters, "blocks", "sms")
    blocks, sms = numbers.values()
    return _Judged(blocks < sms, f"{blocks:,.0f} blocks on {sms:.0f} SMs", numbers)


def _low_occupancy(counters: Counters) -> _Judged:
    """The tensor pipe counts too, by active cycles: a product that keeps it busy has warps enough."""
    parts = ["sm_throughput", "memory_throughput"]
    if "pipe_tensor" in counters or classify(str(counters["name"])).kernel_class in _TENSOR_CLASSES:
        parts.append("pipe_tensor")
    numbers = _numbers(counters, "occupancy_achieved", "occupancy_theoretical", *parts)
    achieved, theoretical, *busy = numbers.values()
    reason = f"{achieved:.0f} % of an SM's warps, busiest part {max(busy):.0f} % of its peak"
    if theoretical < OCCUPANCY_PERCENT:
        reason += f"; {counters.get('occupancy_limiter', 'unknown limits')} allow no more than {theoretical:.0f} %"
    elif achieved < OCCUPANCY_PERCENT:
        reason += f"; {theoretical:.0f} % would fit, but blocks are too few, too short or unequal"
    return _Judged(achieved < OCCUPANCY_PERCENT and max(busy) < BUSY_PERCENT, reason, numbers)


def _tensor_cores_unused(counters: Counters) -> _Judged:
    """A product that device memory keeps waiting (of few rows, as in decoding) would gain nothing by them."""
    kind = classify(str(counters["name"]))
    product = f"{kind.kernel_class}, {kind.dtype or 'unknown format'}"
    if kind.kernel_class not in _TENSOR_CLASSES or (kind.dtype and kind.dtype not in _TENSOR_DTYPES):
        return _Judged(False, f"nothing for tensor cores: {product}", {})
    used, numbers = _tensor_use(counters, kind.dtype)
    if used:
        return _Judged(False, f"tensor cores are used: {product}", numbers)
    if kind.dtype is None:
        raise _Missing("the number format, which the kernel's name does not tell")
    numbers |= _numbers(counters, "dram_throughput")
    return _Judged(numbers["dram_throughput"] < DRAM_BUSY_PERCENT, f"no tensor cores: {product}", numbers)


def _tensor_use(counters: Counters, dtype: DType | None) -> tuple[bool, dict[str, float]]:
    """Whether tensor cores worked, by their operations where ncu counts those of this format, else by their pipe."""
    counted = {metric: float(counters[metric]) for metric in counters if metric.startswith(_TENSOR_OPS)}
    if any(counted.values()) or f"{_TENSOR_OPS}{dtype}" in counted:
        return any(counted.values()), counted
    numbers = _numbers(counters, "pipe_tensor")
    if 0 < numbers["pipe_tensor"] < TENSOR_PERCENT:
        raise _Missing("a count of tensor operations: the little that their pipe did may be other arithmetic")
    return numbers["pipe_tensor"] > 0, numbers


_CHECKS: Final[Mapping[FaultName, Callable[[Counters], _Judged]]] = {
    "bank_conflicts": functools.partial(
        _excess,
        of="shared_wavefronts",
        threshold=SHARED_EXCESS_PERCENT,
        unused="shared memory is not used",
        needless="passes of shared memory are by bank conflicts",
    ),
    "uncoalesced": functools.partial(
        _excess,
        of="global_sectors",
        threshold=GLOBAL_EXCESS_PERCENT,
        unused="no load or store of global memory",
        needless="sectors would not be needed by coalesced accesses",
    ),
    "spills": _spills,
    "divergence": _divergence,
    "atomics": _atomics,
    "l2_misses": _l2_misses,
    "tail": _tail,
    "small_grid": _small_grid,
    "low_occupancy": _low_occupancy,
    "tensor_cores_unused": _tensor_cores_unused,
}
