"""How much of the kernel time of a case is bound by what, by a timeline and counters of the same kernels."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from inferprof.profilers import ncu, nsys
from inferprof.tables import schema
from inferprof.tables.counters.ncu_timeline import shares


def frame(tool: str, level: str, launches: list[dict[str, Any]]) -> pd.DataFrame:
    """Rows as the readers give them: name, and per metric a number or words."""
    rows = [
        {"level": level, "name": launch["name"], "launch": number, "instances": launch.get("instances", 1)}
        | {"metric": metric, ("text" if isinstance(value, str) else "value"): value}
        for number, launch in enumerate(launches)
        for metric, value in launch.items()
        if metric not in ("name", "instances")
    ]
    return schema.conform(pd.DataFrame(rows), tool)


def config(name: str, total: float, grid: str = "1,1,1") -> dict[str, Any]:
    times = {f"duration_{metric}": total for metric in ("total", "mean", "min", "max")}
    return {"name": name, "grid": grid, "block": "128,1,1", **times}


def counted(name: str, sm: float, memory: float, grid: str = "1,1,1", tail: float = 0.0) -> dict[str, Any]:
    percents = {"sm_throughput": sm, "memory_throughput": memory, "tail_waste": tail}
    return {"name": name, "grid": grid, "block": "128,1,1", "duration_total": 9.0, **percents}


TIMELINE = frame(
    "nsys", "launch_config", [config("gemm", 500.0), config("gemm", 100.0, "2,1,1"), config("add", 400.0)]
)


def test_each_configuration_counts_by_its_share_of_the_timeline():
    counters = frame("ncu", "kernel", [counted("gemm", 90.0, 9.0, tail=20.0), counted("add", 9.0, 90.0)])
    assert shares(counters, TIMELINE) == pytest.approx({"compute": 0.5 * 0.8, "tail": 0.5 * 0.2, "memory": 0.4})


def test_of_launches_alike_each_counts_the_same():
    counters = frame("ncu", "kernel", [counted("gemm", 90.0, 9.0), counted("gemm", 9.0, 9.0)])
    assert shares(counters, TIMELINE) == {"compute": 0.25, "latency": 0.25, "tail": 0.0}


def test_launches_that_the_timeline_lacks_or_whose_throughput_is_unknown_do_not_count():
    half = {"name": "add", "grid": "1,1,1", "block": "128,1,1", "duration_total": 9.0}
    counters = frame("ncu", "kernel", [counted("gemm", 90.0, 9.0, "7,1,1"), half])
    assert shares(counters, TIMELINE) == {}


def test_without_launch_configurations_there_are_no_shares():
    alone = frame("nsys", "kernel", [{"name": "gemm", "duration_total": 500.0}])
    assert shares(frame("ncu", "kernel", [counted("gemm", 90.0, 9.0)]), alone) == {}


def test_eight_counted_launches_of_a_vit_explain_what_bounds_45_percent_of_its_kernel_time(
    repository: Path, captured: Callable[[str], Path]
):
    counters = ncu.read(repository / "tests/data/ncu/h100_ort_cuda_vit_raw.csv.gz")
    found = shares(counters, nsys.read(captured("h100_ort_cuda_vit")))
    # Latency: nvjet 13.07 % and 8.41 %, LayerNorm 10.86 %, and the filled part of the additions, 1182 blocks of 2112
    assert found["latency"] == pytest.approx(
        0.13068 + 0.08412 + 0.10858 + (0.04540 + 0.03699) * 1182 / 2112, abs=1e-4
    )
    assert found["compute"] == pytest.approx(0.04905 * 4.48 / 5, abs=2e-4)
    assert sum(found.values()) == pytest.approx(0.45481, abs=1e-4)
