"""The one place that says which of Nsight Compute's metrics ours are, how they are collected, and their formulas.

Names checked on raw and details pages of ncu 2023 (GA106), 2025.3.1 (H100), 2025 (B200) and 2026.2.1 (RTX 5070).
Of several names for one quantity the first that a report has counts: architectures and versions rename them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from inferprof.tables.counters.bounds import last_wave_waste
from inferprof.tables.metrics import SECTOR_BYTES, STALLS

TIMES: Final = {
    "ns": 1.0,
    "nsecond": 1.0,
    "us": 1e3,
    "usecond": 1e3,
    "ms": 1e6,
    "msecond": 1e6,
    "s": 1e9,
    "second": 1e9,
}
"""Long ones until about 2023 (`usecond`, `cycle/nsecond`), short ones since."""
_PREFIXES: Final = " KMGT"
_SCALED: Final = re.compile(r"(?P<prefix>[KMGTkmgt]?)(?P<binary>i?)(?:B|[Bb]ytes?|[Hh]z)(?:/.*)?")
_FREQUENCY: Final = re.compile(r"cycle/(?P<time>\w+)")


@functools.cache
def scale_of(unit: str) -> float:
    """What a value in a unit of ncu is multiplied by, for ns, byte and Hz: `us`, `msecond`, `Kbyte/block`, `Ghz`.

    K is 1000, in ncu as in SI, and Ki 1024. What is counted, or a share, is as it is.
    """
    if unit in TIMES:
        return TIMES[unit]
    if match := _SCALED.fullmatch(unit):
        step = 1024.0 if match["binary"] else 1e3
        return step ** _PREFIXES.index(match["prefix"].upper() or " ")
    if (match := _FREQUENCY.fullmatch(unit)) and match["time"] in TIMES:
        return 1e9 / TIMES[match["time"]]
    return 1.0


SECTIONS: Final = (
    "SpeedOfLight",
    "SpeedOfLight_RooflineChart",
    "SpeedOfLight_HierarchicalHalfRooflineChart",
    "SpeedOfLight_HierarchicalTensorRooflineChart",
    "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis",
    "MemoryWorkloadAnalysis_Chart",
    "MemoryWorkloadAnalysis_Tables",
    "SchedulerStats",
    "WarpStateStats",
    "InstructionStats",
    "LaunchStats",
    "Occupancy",
    "WorkloadDistribution",
    "SourceCounters",
)
"""What is collected: sections, not names, since ncu knows which counters of a section a GPU has, and its rules run on
sections. The set `full` less PM sampling, NVLink, NUMA and the other rooflines, which cost passes and most of a
report's size."""

MHZ: Final = 1e-6
DURATION: Final = "gpu__time_duration.sum"
NOT_SELECTED: Final = "not_selected"


@dataclass(frozen=True)
class Source:
    """ncu's names for one metric; `scale` turns its base unit (ns, byte, Hz) into ours."""

    names: tuple[str, ...]
    scale: float = 1.0


def _of(*names: str, scale: float = 1.0) -> Source:
    return Source(names, scale)


def _peak(*counters: str, of: str = "elapsed") -> Source:
    return Source(tuple(f"{counter}.avg.pct_of_peak_sustained_{of}" for counter in counters))


def _pipe(*counters: str) -> Source:
    return _peak(*(f"sm__{counter}" for counter in counters), of="active")


_LOCAL: Final = "l1tex__t_sectors_pipe_lsu_mem_local_op_{}.sum"
_GLOBAL: Final = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
_REQUESTS: Final = "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"
_TENSOR_OPS: Final = "sm__ops_path_tensor_src_{}.sum"
_STALL: Final = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"

SOURCES: Final[Mapping[str, Source]] = {
    "duration_total": _of(DURATION),
    "sm_throughput": _peak("sm__throughput"),
    "memory_throughput": _peak("gpu__compute_memory_throughput"),
    "dram_throughput": _peak("gpu__dram_throughput", "dram__throughput"),
    "l2_throughput": _peak("lts__throughput"),
    "l1_throughput": _peak("l1tex__throughput", of="active"),
    "dram_bytes_read": _of("dram__bytes_read.sum", "dram__bytes_op_read.sum"),
    "dram_bytes_written": _of("dram__bytes_write.sum", "dram__bytes_op_write.sum"),
    "l2_bytes": _of("lts__t_sectors.sum", scale=SECTOR_BYTES),
    "l2_hit_rate": _of("lts__t_sector_hit_rate.pct"),
    "l1_hit_rate": _of("l1tex__t_sector_hit_rate.pct"),
    "occupancy_theoretical": _of("sm__maximum_warps_per_active_cycle_pct"),
    "occupancy_achieved": _peak("sm__warps_active", of="active"),
    "block_limit_registers": _of("launch__occupancy_limit_registers"),
    "block_limit_shared_memory": _of("launch__occupancy_limit_shared_mem"),
    "block_limit_warps": _of("launch__occupancy_limit_warps"),
    "block_limit_blocks": _of("launch__occupancy_limit_blocks"),
    "block_limit_barriers": _of("launch__occupancy_limit_barriers"),
    "registers": _of("launch__registers_per_thread"),
    "shared_memory": _of("launch__shared_mem_per_block"),
    "threads": _of("launch__block_size"),
    "blocks": _of("launch__grid_size"),
    "sms": _of("launch__sm_count", "device__attribute_multiprocessor_count"),
    "waves": _of("launch__waves_per_multiprocessor"),
    "sm_clock": _of("gpc__cycles_elapsed.avg.per_second", "sm__cycles_elapsed.avg.per_second", scale=MHZ),
    "dram_clock": _of("dram__cycles_elapsed.avg.per_second", scale=MHZ),
    "instructions": _of("smsp__inst_executed.sum", "sm__inst_executed.sum"),
    "issue_active": _peak("smsp__issue_active", of="active"),
    "warp_cycles_per_instruction": _of("smsp__average_warp_latency_per_inst_issued.ratio"),
    "eligible_warps": _of("smsp__warps_eligible.avg.per_cycle_active"),
    "sm_bytes_read": _of("l1tex__m_xbar2l1tex_read_bytes.sum"),
    "sm_bytes_written": _of("l1tex__m_l1tex2xbar_write_bytes.sum"),
    "inter_sm_bytes_read": _of("l1tex__m_xbar2l1tex_read_bytes_mem_dshared.sum"),
    "inter_sm_bytes_written": _of("l1tex__m_l1tex2xbar_write_bytes_mem_dshared.sum"),
    "local_bytes_loaded": _of(_LOCAL.format("ld"), scale=SECTOR_BYTES),
    "local_bytes_stored": _of(_LOCAL.format("st"), scale=SECTOR_BYTES),
    "spill_requests": _of("derived__local_spilling_requests"),
    "shared_wavefronts": _of("memory_l1_wavefronts_shared"),
    "shared_wavefronts_excess": _of("derived__memory_l1_wavefronts_shared_excessive"),
    "shared_bank_conflicts": _of("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"),
    "global_load_requests": _of(_REQUESTS.format("ld")),
    "global_store_requests": _of(_REQUESTS.format("st")),
    "global_sectors": _of("memory_l2_theoretical_sectors_global"),
    "global_sectors_excess": _of("derived__memory_l2_theoretical_sectors_global_excessive"),
    "threads_per_instruction": _of("smsp__thread_inst_executed_per_inst_executed.ratio"),
    "threads_per_instruction_predicated": _of("smsp__thread_inst_executed_pred_on_per_inst_executed.ratio"),
    "branches": _of("smsp__inst_executed_op_branch.sum"),
    "branches_divergent": _of(
        "smsp__sass_branch_targets_threads_divergent.sum", "smsp__branch_targets_threads_divergent"
    ),
    "branch_efficiency": _of("smsp__sass_average_branch_targets_threads_uniform.pct"),
    "global_atomics": _of(_REQUESTS.format("atom")),
    "global_reductions": _of(_REQUESTS.format("red")),
    "shared_atomics": _of("smsp__inst_executed_op_shared_atom.sum"),
    "l2_atomic_sectors": _of("lts__t_sectors_srcunit_tex_op_atom.sum", "lts__t_sectors_op_atom.sum"),
    "l2_reduction_sectors": _of("lts__t_sectors_srcunit_tex_op_red.sum", "lts__t_sectors_op_red.sum"),
    "l2_atomic_throughput": _peak("lts__d_atomic_input_cycles_active"),
    "pipe_tensor_float": _pipe("pipe_tensor_op_hmma_cycles_active", "pipe_tensor_subpipe_hmma_cycles_active"),
    "pipe_tensor_int": _pipe("pipe_tensor_op_imma_cycles_active", "pipe_tensor_subpipe_imma_cycles_active"),
    "pipe_tensor_double": _pipe("pipe_tensor_op_dmma_cycles_active", "pipe_tensor_subpipe_dmma_cycles_active"),
    "pipe_fma": _pipe("pipe_fma_cycles_active", "inst_executed_pipe_fma"),
    "pipe_fp16": _pipe("inst_executed_pipe_fma_type_fp16", "inst_executed_pipe_fp16"),
    "pipe_fp64": _pipe("pipe_fp64_cycles_active", "inst_executed_pipe_fp64"),
    "pipe_alu": _pipe("pipe_alu_cycles_active", "inst_executed_pipe_alu"),
    "pipe_xu": _pipe("inst_executed_pipe_xu"),
    "pipe_lsu": _pipe("inst_executed_pipe_lsu"),
    "tensor_ops_fp16": _of(_TENSOR_OPS.format("fp16")),
    "tensor_ops_bf16": _of(_TENSOR_OPS.format("bf16_dst_fp32")),
    "tensor_ops_tf32": _of(_TENSOR_OPS.format("tf32_dst_fp32")),
    "tensor_ops_int8": _of(_TENSOR_OPS.format("int8")),
    "tensor_ops_fp64": _of(_TENSOR_OPS.format("fp64")),
    "replay_passes": _of("profiler__replayer_passes"),
}
"""Our metric → what ncu calls it, where it is one of ncu's. What is computed of several is in `derive`."""

_LIMITERS: Final = {
    "block_limit_registers": "registers",
    "block_limit_shared_memory": "shared memory",
    "block_limit_warps": "warps",
    "block_limit_blocks": "blocks",
    "block_limit_barriers": "barriers",
}
_TENSOR_PIPES: Final = _pipe("pipe_tensor_cycles_active", "pipe_tc_cycles_active", "inst_executed_pipe_tensor").names
"""Hopper and older; tcgen05 of Blackwell, which has both; Turing."""
_OTHER_NAMES: Final = (
    *_TENSOR_PIPES,
    *(_LOCAL.format(op) for op in ("ld", "st")),
    *(_GLOBAL.format(op) for op in ("ld", "st")),
    *(_TENSOR_OPS.format(f"fp8_sparsity_{state}") for state in ("off", "on")),
    *(f"smsp__sass_inst_executed_op_shared_{op}.sum" for op in ("ld", "st")),
    *(_STALL.format(reason) for reason in (*STALLS, "selected")),
    "sm__cycles_active.avg",
    "sm__cycles_elapsed.max",
    "gpc__cycles_elapsed.max",
)
_INSTRUCTION: Final = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
_CYCLES: Final = "smsp__cycles_elapsed.avg"
FLOP_PER_INSTRUCTION: Final = {
    "flop_fp64": {"dadd": 1, "dmul": 1, "dfma": 2},
    "flop_fp32": {"fadd": 1, "fmul": 1, "ffma": 2},
    "flop_fp16": {"hadd": 2, "hmul": 2, "hfma": 4},
}
"""Operations of one thread's instruction outside of the tensor cores: FP16 has two numbers to an instruction, as in
ncu's own `derived__smsp__sass_thread_inst_executed_op_hfma_pred_on_x4`."""
WANTED: Final = frozenset(
    {name for source in SOURCES.values() for name in source.names}
    | {_INSTRUCTION.format(op) for weights in FLOP_PER_INSTRUCTION.values() for op in weights}
    | {*_OTHER_NAMES, _CYCLES}
)
"""All of ncu's metrics that ours are made of."""


def ours(raw: Mapping[str, float]) -> dict[str, float | str]:
    """Our metrics of one launch, from ncu's by name in base units (ns, byte, Hz, %); without what was not counted."""
    values: dict[str, float | str] = {}
    for metric, source in SOURCES.items():
        value = next((raw[name] for name in source.names if name in raw), None)
        if value is not None:
            values[metric] = value * source.scale
    if values.get("branch_efficiency") == 0 and not values.get("branches_divergent"):
        del values["branch_efficiency"]  # ncu's 0 % of a kernel in which no branch could split a warp
    return values | _memory(raw) | _launch(raw) | _tensor(raw) | _flops(raw) | _stalls(raw)


def _memory(raw: Mapping[str, float]) -> dict[str, float]:
    accesses = [raw.get(name.format(op)) for name in (_GLOBAL, _LOCAL) for op in ("ld", "st")]
    values: dict[str, float | None] = {
        "l1_bytes": _sum(accesses, SECTOR_BYTES),
        "shared_instructions": _sum([raw.get(f"smsp__sass_inst_executed_op_shared_{op}.sum") for op in ("ld", "st")]),
        "global_load_sectors_per_request": _ratio(raw, _GLOBAL.format("ld"), _REQUESTS.format("ld")),
        "global_store_sectors_per_request": _ratio(raw, _GLOBAL.format("st"), _REQUESTS.format("st")),
    }
    return {metric: value for metric, value in values.items() if value is not None}


def _launch(raw: Mapping[str, float]) -> dict[str, float | str]:
    """Limiter of the occupancy: all that allow no more blocks than the scarcest does."""
    values: dict[str, float | str] = {}
    limits = {
        word: raw[SOURCES[metric].names[0]] for metric, word in _LIMITERS.items() if SOURCES[metric].names[0] in raw
    }
    if limits:
        values["occupancy_limiter"] = ", ".join(
            word for word, limit in limits.items() if limit == min(limits.values())
        )
    if waves := raw.get("launch__waves_per_multiprocessor"):
        blocks, sms = (raw.get(SOURCES[metric].names[0]) for metric in ("blocks", "sms"))
        values["tail_waste"] = 100 * last_wave_waste(waves, blocks, sms)
    elapsed = raw.get("sm__cycles_elapsed.max", raw.get("gpc__cycles_elapsed.max"))
    if elapsed and "sm__cycles_active.avg" in raw:
        values["sm_active"] = 100 * raw["sm__cycles_active.avg"] / elapsed
    return values


def _tensor(raw: Mapping[str, float]) -> dict[str, float]:
    values: dict[str, float] = {}
    if pipes := [raw[name] for name in _TENSOR_PIPES if name in raw]:
        values["pipe_tensor"] = max(pipes)
    fp8 = _sum([raw.get(_TENSOR_OPS.format(f"fp8_sparsity_{state}")) for state in ("off", "on")])
    return values if fp8 is None else values | {"tensor_ops_fp8": fp8}


def _flops(raw: Mapping[str, float]) -> dict[str, float]:
    """Operations per elapsed cycle of all instructions of a format, times the cycles; where all were counted."""
    values: dict[str, float] = {}
    for metric, weights in FLOP_PER_INSTRUCTION.items():
        rates = [raw.get(_INSTRUCTION.format(op)) for op in weights]
        weighted = [
            None if rate is None else rate * weight for rate, weight in zip(rates, weights.values(), strict=True)
        ]
        if _CYCLES in raw and (total := _sum(weighted, raw[_CYCLES])) is not None:
            values[metric] = total
    return values


def _stalls(raw: Mapping[str, float]) -> dict[str, float | str]:
    """Each reason's share of the cycles between two instructions of a warp; the issue itself takes one of them."""
    cycles = {reason: raw[name] for reason in STALLS if (name := _STALL.format(reason)) in raw}
    total = sum(cycles.values()) + raw.get(_STALL.format("selected"), 0.0)
    if total == 0:
        return {}
    waits = {reason: count for reason, count in cycles.items() if reason != NOT_SELECTED and count}
    top: dict[str, float | str] = {"stall_top": max(waits, key=lambda reason: waits[reason])} if waits else {}
    return {f"stall_{reason}": 100 * count / total for reason, count in cycles.items()} | top


def _sum(parts: Sequence[float | None], scale: float = 1.0) -> float | None:
    """The sum, where no part is missing."""
    numbers = [part for part in parts if part is not None]
    return scale * sum(numbers) if len(numbers) == len(parts) else None


def _ratio(raw: Mapping[str, float], numerator: str, denominator: str) -> float | None:
    """None where one is missing or there is nothing to divide by."""
    return raw[numerator] / raw[denominator] if numerator in raw and raw.get(denominator) else None
