"""Launch configurations of an nsys export, against sums that a person makes in SQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from tests.unit.conftest import SCHEMAS, Export

from inferprof.readers.launch_configs import rows
from inferprof.readers.nsys_sqlite import read_timeline


def wide(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration."""
    content = frame["value"].astype(object).where(frame["value"].notna(), frame["text"])
    keys = ["launch", "name", "instances"]
    return frame.assign(content=content).pivot(index=keys, columns="metric", values="content").reset_index()


def test_the_longest_configurations_of_a_real_run(captured: Callable[[str], Path]) -> None:
    table = wide(rows(read_timeline(captured("h100_torch_eager")), "nsys"))
    first = table.iloc[0]
    assert (first["grid"], first["block"], first["instances"]) == ("1576,1,1", "32,4,1", 375)
    assert first["duration_total"] == 1450199
    assert first["duration_mean"] == pytest.approx(1450199 / 375)
    assert first["symbol"].startswith("_ZN2at6native53_GLOBAL__N__")
    assert table["duration_total"].is_monotonic_decreasing
    gelu = table[table["name"].str.contains("GeluCUDAKernelImpl")]
    assert (gelu["grid"].tolist(), gelu["duration_total"].tolist()) == (["1182,1,1"], [484102])


def test_one_kernel_with_two_grids_is_two_configurations(captured: Callable[[str], Path]) -> None:
    table = wide(rows(read_timeline(captured("h100_torch_eager")), "nsys"))
    copies = table[table["name"].str.contains("elementwise_kernel<(int)128, (int)4", regex=False)]
    assert copies[["grid", "duration_total"]].to_numpy().tolist() == [["588,1,1", 44771], ["591,1,1", 38689]]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_schema_is_read_with_or_without_mangled_names(schema: str, export: Callable[..., Export]) -> None:
    made = export(schema)
    made.kernel("gemm", 100, 250, made.call("cudaLaunchKernel", 10, 20))
    frame = rows(read_timeline(made.done()), "nsys")
    assert frame.loc[frame["metric"] == "duration_total", "value"].tolist() == [150]
    assert "symbol" not in set(frame["metric"])


def test_an_export_without_kernels_has_none(export: Callable[..., Export]) -> None:
    made = export()
    made.call("cudaMalloc", 10, 20)
    assert rows(read_timeline(made.done()), "nsys").empty
