"""Every metric of the tidy table: its name, unit and meaning. A tool's raw names stay in that tool's reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Metric:
    """A named quantity. `unit` is ns, bytes, count, ratio, percent, GB/s, W, MHz, C or text."""

    name: str
    unit: str
    meaning: str


STALLS: dict[str, str] = {
    "long_scoreboard": "a load from global, local or texture memory",
    "short_scoreboard": "shared memory or the XU",
    "barrier": "other warps at a barrier",
    "membar": "a memory barrier",
    "math_pipe_throttle": "a busy math pipe",
    "mio_throttle": "the full queue of shared memory and special instructions",
    "lg_throttle": "the full queue of global and local memory",
    "tex_throttle": "the full queue of textures",
    "gmma": "an asynchronous product of the tensor cores",
    "wait": "a fixed latency",
    "branch_resolving": "a branch",
    "imc_miss": "a constant that is not in its cache",
    "no_instruction": "an instruction that is not in its cache",
    "dispatch_stall": "the dispatcher",
    "drain": "stores at the end of the warp",
    "sleeping": "a sleep",
    "misc": "other reasons of the hardware",
    "not_selected": "another warp that was issued instead",
}
"""Why a warp does not issue, as ncu names it → what it waits for."""
SECTOR_BYTES: Final = 32
"""Of a sector, in which accesses of memory are counted. https://docs.nvidia.com/nsight-compute/ProfilingGuide/#memory-tables"""

_ALL = (
    Metric("duration_total", "ns", "sum over all instances"),
    Metric("duration_median", "ns", "median instance"),
    Metric("duration_mean", "ns", "mean instance"),
    Metric("duration_min", "ns", "shortest instance"),
    Metric("duration_max", "ns", "longest instance"),
    Metric("duration_stddev", "ns", "sample standard deviation over instances"),
    Metric("start", "ns", "start on the tool's clock, single launches only; of an event since its iteration began"),
    Metric("event_kind", "text", "of an event: kernel, memcpy, memset, graph, api or range"),
    Metric("bytes_total", "bytes", "bytes moved, all instances"),
    Metric("bandwidth", "GB/s", "bytes_total / duration_total, with GB = 10^9 bytes"),
    Metric("sync_kind", "text", "explicit: the call is a synchronise; implicit: it waits for the GPU all the same"),
    # Of ranges and of the whole run; means per instance, so that they add up. Formulas: tables.trace.derived.
    Metric("gpu_busy", "ns", "union of kernels, copies, memsets and graphs"),
    Metric("kernel_busy", "ns", "union of kernels and graphs"),
    Metric("gpu_idle", "ns", "duration - gpu_busy"),
    Metric(
        "idle_launch", "ns", "GPU idle: the next operation was not launched yet, being launched, or just launched"
    ),
    Metric("launching_idle", "ns", "of idle_launch: the host was in launching calls"),
    Metric(
        "starting_idle",
        "ns",
        "of idle_launch: the call had returned, and what it launched started 100 µs later at most",
    ),
    Metric("idle_sync", "ns", "GPU idle: the host sat in a synchronise call before it launched the next operation"),
    Metric("idle_copy", "ns", "GPU idle: the host was in a copy call"),
    Metric("idle_queued", "ns", "GPU idle although the next operation was launched: latency, or another stream"),
    Metric("idle_end", "ns", "GPU idle: no further operation begins in the range"),
    Metric("idle_unknown", "ns", "GPU idle: the capture does not tie the next operation to a launch"),
    Metric("idle_other_process", "ns", "GPU idle for the case while another process's operations ran on it"),
    Metric(
        "untold_share", "ratio", "time that may lack at most: rows cut off, which a CSV of nsys stats cannot tell"
    ),
    Metric("streams_overlap", "ns", "two or more streams busy"),
    Metric("launches", "count", "API calls that launched an operation; a graph launch is one"),
    Metric("launch_overhead", "ns", "host time in launching calls"),
    Metric("launch_wait", "ns", "sum over launches from the call's return to the operation's start"),
    Metric("allocations", "count", "calls that allocate or free memory"),
    Metric("allocation_time", "ns", "host time in them"),
    Metric("syncs", "count", "synchronise calls"),
    Metric("sync_time", "ns", "host time in them"),
    Metric("implicit_syncs", "count", "calls that wait for the GPU without being a synchronise"),
    Metric("implicit_sync_time", "ns", "host time in them"),
    Metric("launch_bound", "ratio", "idle_launch / duration"),
    Metric("gpu_busy_share", "ratio", "gpu_busy / duration"),
    Metric("queue_depth", "ratio", "launches waiting on the device, mean over time: launch_wait / duration"),
    Metric("launch_overhead_mean", "ns", "host time of one launching call"),
    Metric("launch_wait_mean", "ns", "from a launching call's return to the operation's start"),
    Metric("streams_overlap_share", "ratio", "streams_overlap / gpu_busy"),
    # Of collectives over several GPUs. Formulas: tables.trace.collectives.
    Metric("waiting_total", "ns", "in kernels of collectives before the last GPU began, all collectives"),
    Metric("transfer_total", "ns", "in them from then on"),
    Metric("inside_total", "ns", "all GPUs were in the kernel"),
    Metric("spread_total", "ns", "the longest transfer over the GPUs less the shortest"),
    Metric("last_count", "count", "collectives that this GPU began last"),
    Metric(
        "waiting_compute", "ns", "of waiting_total: what the last GPU computed longer since the collective before"
    ),
    Metric("waiting_copy", "ns", "the same of copies"),
    Metric("waiting_idle", "ns", "the same of idle time: its launches came later"),
    Metric("hidden_total", "ns", "communication while the same GPU computes"),
    Metric("exposed_total", "ns", "communication while it does not"),
    Metric(
        "clock_offset", "ns", "the GPU's clock is ahead of the first one's, by the ends of collectives: taken off"
    ),
    Metric("beside_total", "ns", "kernels beside communication that also run alone in the capture"),
    Metric("slowed_total", "ns", "of them: beyond the median that they take alone, by kernel, grid and block"),
    Metric("bubble_total", "ns", "of a pipeline: the GPU neither computes nor copies nor transfers in iterations"),
    Metric("message_total", "bytes", "messages of collectives, as nccl-tests counts them"),
    Metric("bus_total", "bytes", "their part that crosses a link; over transfer_total it is the bus bandwidth"),
    Metric("not_paired", "text", "why collectives of several GPUs have no waiting and no transfer"),
    # Of a layer of an engine. Lists have one item a line; tensors are name, sizes and format with tabs between.
    Metric("layer_type", "text", "what the runtime calls its kind; empty where it tells names only"),
    Metric("tactic", "text", "the kernel that the builder picked"),
    Metric("weight_dtype", "text", "number format of its weights"),
    Metric("weight_sparsity", "text", "sparse: its kernel uses 2:4 sparse weights; dense: it has others"),
    Metric("origin", "text", "why a reformat is there"),
    Metric("onnx_nodes", "text", "the nodes of the ONNX graph that it was made of"),
    Metric("input_tensors", "text", "what it reads"),
    Metric("output_tensors", "text", "what it writes"),
    # Of a node of ONNX Runtime.
    Metric("first_run", "ns", "in the first run, where it tunes itself and allocates; in no duration"),
    Metric("position", "count", "place of its first execution in a run, from 0"),
    Metric("output_bytes", "bytes", "what one execution writes"),
    Metric("input_types", "text", "number formats of its inputs"),
    Metric("fallback_reason", "text", "why a provider left it to another: the runtime's own words, or the option"),
    Metric("subgraph_nodes", "count", "nodes of the graph that were fused into it"),
    Metric("kernel_idle", "ns", "duration - kernel_busy: the host was in it while the GPU computed nothing"),
    # Of kernels whose owner is a layer, or a layer and a node of it.
    Metric("layer_confidence", "ratio", "how sure it is that the kernel is the layer's: tables.nodes.trt_join"),
    Metric("node_confidence", "ratio", "how sure it is that the kernel is the node's: tables.nodes.graph_nodes"),
    Metric("grid", "text", "launch grid x,y,z"),
    Metric("block", "text", "thread block x,y,z"),
    # Of one kernel launch, by counters; its duration is duration_total. ncu's names, formulas: readers.ncu_metrics.
    Metric("sm_throughput", "percent", "of the busiest part of the SMs, of what it sustains at most"),
    Metric("memory_throughput", "percent", "of the busiest part of caches and device memory, of what it sustains"),
    Metric("dram_throughput", "percent", "of device memory's peak"),
    Metric("l2_throughput", "percent", "of the L2's peak"),
    Metric("l1_throughput", "percent", "of the L1's peak while its SM is active"),
    Metric("dram_bytes_read", "bytes", "device memory to L2"),
    Metric("dram_bytes_written", "bytes", "L2 to device memory"),
    Metric("l2_bytes", "bytes", "all that the L2 was asked for: 32 B per sector"),
    Metric("l1_bytes", "bytes", "global and local loads and stores at the L1: 32 B per sector"),
    Metric("sm_bytes_read", "bytes", "into the SMs, from the L2 and from other SMs"),
    Metric("sm_bytes_written", "bytes", "out of the SMs, to the L2 and to other SMs"),
    Metric("inter_sm_bytes_read", "bytes", "of these, read from the shared memory of other SMs of a cluster"),
    Metric("inter_sm_bytes_written", "bytes", "of these, written to the shared memory of other SMs of a cluster"),
    Metric("l2_hit_rate", "percent", "of the L2's sectors"),
    Metric("l1_hit_rate", "percent", "of the L1's sectors"),
    Metric("occupancy_theoretical", "percent", "warps that fit on an SM, of those that it holds at most"),
    Metric("occupancy_achieved", "percent", "warps that were active on an SM, mean over its active cycles"),
    Metric(
        "occupancy_limiter",
        "text",
        "what lets no further block fit: registers, shared memory, warps, blocks, barriers",
    ),
    Metric("block_limit_registers", "count", "blocks per SM that the registers allow"),
    Metric("block_limit_shared_memory", "count", "blocks per SM that shared memory allows"),
    Metric("block_limit_warps", "count", "blocks per SM that the warp slots allow"),
    Metric("block_limit_blocks", "count", "blocks per SM that the hardware allows"),
    Metric("block_limit_barriers", "count", "blocks per SM that the barriers allow"),
    Metric("registers", "count", "per thread"),
    Metric("shared_memory", "bytes", "per block, with what the driver reserves"),
    Metric("threads", "count", "per block"),
    Metric("blocks", "count", "of the grid"),
    Metric("sms", "count", "streaming multiprocessors that the kernel could use"),
    Metric("waves", "ratio", "blocks / blocks that fit on the GPU at once"),
    Metric(
        "tail_waste",
        "percent",
        "of its SM time, empty because its blocks do not fill the last wave: tables.counters.bounds",
    ),
    Metric("sm_active", "percent", "cycles with a warp on the SM, of the elapsed ones, mean over SMs"),
    Metric("sm_clock", "MHz", "of the SMs while the kernel ran"),
    Metric("dram_clock", "MHz", "of device memory while the kernel ran"),
    Metric("instructions", "count", "executed, per warp"),
    Metric("issue_active", "percent", "cycles in which a scheduler issues, of its active ones"),
    Metric("warp_cycles_per_instruction", "ratio", "cycles between two instructions that a warp issues"),
    Metric("eligible_warps", "ratio", "warps that could issue, per scheduler and cycle"),
    Metric("local_bytes_loaded", "bytes", "local memory at the L1, where spilled registers and indexed arrays go"),
    Metric("local_bytes_stored", "bytes", "the same, stores"),
    Metric("spill_requests", "count", "of local memory, by spilled registers alone"),
    Metric("shared_wavefronts", "count", "passes that shared memory took for all accesses"),
    Metric("shared_wavefronts_excess", "count", "of them, beyond what the accesses need: by bank conflicts"),
    Metric("shared_bank_conflicts", "count", "of loads, stores and atomics, as the L1 counts them"),
    Metric("shared_instructions", "count", "loads and stores of shared memory, per warp"),
    Metric("global_load_requests", "count", "global loads at the L1, per warp"),
    Metric("global_store_requests", "count", "global stores at the L1, per warp"),
    Metric(
        "global_load_sectors_per_request",
        "ratio",
        "32 B sectors that a warp's load touches: 4 for 32 adjacent floats",
    ),
    Metric("global_store_sectors_per_request", "ratio", "the same, stores"),
    Metric("global_sectors", "count", "sectors that the global accesses ask of the L2, by their addresses"),
    Metric("global_sectors_excess", "count", "of them, beyond what coalesced accesses need"),
    Metric("threads_per_instruction", "ratio", "active threads of a warp, at most 32: fewer by divergence"),
    Metric("threads_per_instruction_predicated", "ratio", "the same, without those that a predicate switches off"),
    Metric("branches", "count", "branch instructions, per warp"),
    Metric("branches_divergent", "count", "branches that split a warp"),
    Metric("branch_efficiency", "percent", "branches that do not split a warp, as ncu counts them"),
    Metric("global_atomics", "count", "atomics that return a value, requests at the L1, per warp"),
    Metric("global_reductions", "count", "atomics that return nothing, requests at the L1, per warp"),
    Metric("shared_atomics", "count", "atomics on shared memory, instructions per warp"),
    Metric("l2_atomic_sectors", "count", "sectors that atomics touch in the L2"),
    Metric("l2_reduction_sectors", "count", "sectors that reductions touch in the L2"),
    Metric("l2_atomic_throughput", "percent", "of the peak of the L2's atomic unit"),
    Metric("pipe_tensor", "percent", "of the SM's active cycles: tensor cores, any type"),
    Metric("pipe_tensor_float", "percent", "tensor cores on fp16, bf16, tf32, and fp8 where they have it"),
    Metric("pipe_tensor_int", "percent", "tensor cores on integers"),
    Metric("pipe_tensor_double", "percent", "tensor cores on fp64"),
    Metric("pipe_fma", "percent", "of the SM's active cycles: FP32 and integer multiply-add"),
    Metric("pipe_fp16", "percent", "FP16 outside of the tensor cores"),
    Metric("pipe_fp64", "percent", "FP64 outside of the tensor cores"),
    Metric("pipe_alu", "percent", "integer, logic, comparison, conversion to and from narrow types"),
    Metric("pipe_xu", "percent", "transcendental functions, conversion between float and integer"),
    Metric("pipe_lsu", "percent", "loads, stores, atomics"),
    Metric("tensor_ops_fp16", "count", "operations of the tensor cores, 2 per multiply-add, on fp16"),
    Metric("tensor_ops_bf16", "count", "the same on bf16"),
    Metric("tensor_ops_tf32", "count", "the same on tf32"),
    Metric("tensor_ops_fp8", "count", "the same on fp8"),
    Metric("tensor_ops_int8", "count", "the same on int8"),
    Metric("tensor_ops_fp64", "count", "the same on fp64"),
    Metric("flop_fp32", "count", "operations outside of the tensor cores, 2 per multiply-add, in fp32"),
    Metric("flop_fp16", "count", "the same in fp16"),
    Metric("flop_fp64", "count", "the same in fp64"),
    Metric("stall_top", "text", "what warps waited for longest between two instructions"),
    *(
        Metric(f"stall_{reason}", "percent", f"of warp_cycles_per_instruction: {meaning}")
        for reason, meaning in STALLS.items()
    ),
    Metric("symbol", "text", "a kernel's mangled name, which tools do not spell each in their own way"),
    # Of a capture by ncu (level run).
    Metric("clock_control", "text", "base: the profiler locked the clocks; none: they ran as in a measurement"),
    Metric("cache_control", "text", "all: the profiler empties the caches before each pass; none: it leaves them"),
    Metric("report_bytes", "bytes", "size of the tool's own report"),
    Metric("kernel_time_chosen", "percent", "of an iteration's kernel time, of the kernels that were chosen"),
    Metric("not_counted", "text", "a kernel that was chosen, and of which no launch was counted"),
    Metric("not_measured", "text", "why a profiler could not watch the case"),
    # Of one launch again.
    Metric("replay_passes", "count", "times that the kernel ran for all of its counters"),
    # Of one result of NVIDIA's rules (level ncu_rule; owner: the kernel).
    Metric("rule_kind", "text", "optimization, warning, information"),
    Metric("rule_message", "text", "what the rule says"),
    Metric("rule_speed_up_kernel", "percent", "of the kernel's time that the rule expects to be saved"),
    Metric(
        "rule_speed_up_unit", "percent", "gain in efficiency of the part that the rule looks at, not of the kernel"
    ),
)
METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}
"""By name. A reader that needs another adds it here."""
