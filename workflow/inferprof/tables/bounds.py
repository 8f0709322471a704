"""What holds each kernel back, by counters: memory, arithmetic, latency, or the emptiness of its last wave."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

import pandas as pd

from inferprof.tables.kernel_class import own_name
from inferprof.tables.records import rows_of

Bound = Literal["memory", "compute", "latency", "tail"]
BOUNDS: tuple[Bound, ...] = get_args(Bound)
BUSY_PERCENT: Final = 60.0
"""Below this share of either roof a kernel waits for something else. ncu, rule SOLBottleneck: `Achieved compute
throughput and/or memory bandwidth below 60.0% of peak typically indicate latency issues`."""
_NEEDED: Final = ("duration_total", "sm_throughput", "memory_throughput")
_OPTIONAL: Final = ("waves", "blocks", "sms")


@dataclass(frozen=True)
class Bounds:
    """Kernel → how its time is shared out over BOUNDS; the shares of one kernel add up to 1."""

    exact: Mapping[str, Mapping[Bound, float]]
    """By the whole demangled name."""
    loose: Mapping[str, Mapping[Bound, float]]
    """By the name without template arguments and parameters, which tools spell differently."""

    def of(self, kernel: str) -> Mapping[Bound, float] | None:
        """The shares of a kernel by its name; None where no counters of it were read."""
        return self.exact.get(kernel) or self.loose.get(own_name(kernel))


def last_wave_waste(waves: float, blocks: float | None = None, sms: float | None = None) -> float:
    """The share of a kernel's SM time that is empty because its blocks do not fill the last wave.

    waves = blocks / blocks that fit on the GPU at once. From one wave on 1 - waves / ceil(waves), if all blocks take
    equally long and start wave by wave. Below one wave only SMs without any block are empty, 1 - blocks / sms: that
    an SM could hold more blocks wastes nothing that can be read off the grid; 0 where the two are not known.
    """
    if waves >= 1:
        return 1 - waves / math.ceil(waves)
    return max(0.0, 1 - blocks / sms) if blocks and sms else 0.0


def of_launch(launch: Mapping[str, float | None]) -> dict[Bound, float]:
    """How the time of one launch is shared out, from its metrics by name (tables.metrics).

    memory   memory_throughput is BUSY_PERCENT or more and not below sm_throughput. A last wave that is half empty
             costs it nothing: what is left of the blocks still fills the memory's bandwidth.
    compute  sm_throughput is BUSY_PERCENT or more: of the time without the tail, since it is a mean over both.
    latency  neither: warps wait for each other, for results or for instructions.
    tail     of kernels that memory does not bound: last_wave_waste.
    """
    sm, memory = (float(launch[name] or 0.0) for name in ("sm_throughput", "memory_throughput"))
    if memory >= BUSY_PERCENT and memory >= sm:
        return {"memory": 1.0}
    waves = launch.get("waves")
    tail = last_wave_waste(waves, launch.get("blocks"), launch.get("sms")) if waves else 0.0
    filled = 1 - tail
    if not filled or sm / filled >= BUSY_PERCENT:
        return {"compute": filled, "tail": tail}
    return {"memory" if memory / filled >= BUSY_PERCENT else "latency": filled, "tail": tail}


def by_kernel(frame: pd.DataFrame) -> Bounds:
    """The bounds of each kernel of one case, from the rows of level kernel that counters wrote (tool ncu).

    A kernel's launches count by their durations.
    """
    wanted = frame["level"].eq("kernel") & frame["metric"].isin([*_NEEDED, *_OPTIONAL])
    if not wanted.any():
        return Bounds({}, {})
    values = frame.loc[wanted, ["name", "launch", "metric", "value"]]
    launches = values.pivot_table(index=["name", "launch"], columns="metric", values="value", dropna=False)
    launches = launches.reindex(columns=[*_NEEDED, *_OPTIONAL]).dropna(subset=list(_NEEDED)).astype(object)
    launches = launches.where(launches.notna(), None).reset_index()
    exact: dict[str, dict[Bound, float]] = {}
    loose: dict[str, dict[Bound, float]] = {}
    for launch in rows_of(launches):
        name = str(launch["name"])
        for table, key in ((exact, name), (loose, own_name(name))):
            shares = table.setdefault(key, {})
            for bound, share in of_launch(launch).items():
                shares[bound] = shares.get(bound, 0.0) + share * launch["duration_total"]
    return Bounds(*({kernel: _normalised(shares) for kernel, shares in table.items()} for table in (exact, loose)))


def _normalised(weights: Mapping[Bound, float]) -> dict[Bound, float]:
    total = sum(weights.values())
    return {bound: weight / total for bound, weight in weights.items()}
