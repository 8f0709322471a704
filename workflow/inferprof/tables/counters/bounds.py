"""What holds each kernel back, by counters: memory, arithmetic, latency, or the emptiness of its last wave."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

Bound = Literal["memory", "compute", "latency", "tail"]
BOUNDS: tuple[Bound, ...] = get_args(Bound)
BUSY_PERCENT: Final = 60.0
"""Below this share of either roof a kernel waits for something else. ncu, rule SOLBottleneck: `Achieved compute
throughput and/or memory bandwidth below 60.0% of peak typically indicate latency issues`."""


def last_wave_waste(waves: float, blocks: float | None = None, sms: float | None = None) -> float:
    """The share of a kernel's SM time that is empty because its blocks do not fill the last wave.

    waves = blocks / blocks that fit on the GPU at once. From one wave on 1 - waves / ceil(waves), if all blocks take
    equally long and start wave by wave. Below one wave only SMs without any block are empty, 1 - blocks / sms: that
    an SM could hold more blocks wastes nothing that can be read off the grid; 0 where the two are not known.
    """
    if waves >= 1:
        return 1 - waves / math.ceil(waves)
    return max(0.0, 1 - blocks / sms) if blocks and sms else 0.0


def of_launch(launch: Mapping[str, Any]) -> dict[Bound, float]:
    """How the time of one launch is shared out, from its metrics by name (tables.metrics), in percent.

    Needs sm_throughput and memory_throughput; without tail_waste there is no tail.

    memory   memory_throughput is BUSY_PERCENT or more and not below sm_throughput. A last wave that is half empty
             costs it nothing: what is left of the blocks still fills the memory's bandwidth.
    compute  sm_throughput is BUSY_PERCENT or more: of the time without the tail, since it is a mean over both.
    latency  neither: warps wait for each other, for results or for instructions.
    tail     of kernels that memory does not bound: tail_waste, which is last_wave_waste.
    """
    sm, memory = (float(launch[name]) for name in ("sm_throughput", "memory_throughput"))
    if memory >= BUSY_PERCENT and memory >= sm:
        return {"memory": 1.0}
    tail = float(launch.get("tail_waste") or 0.0) / 100
    filled = 1 - tail
    if not filled or sm / filled >= BUSY_PERCENT:
        return {"compute": filled, "tail": tail}
    return {"memory" if memory / filled >= BUSY_PERCENT else "latency": filled, "tail": tail}
