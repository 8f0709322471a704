"""Which kernels Nsight Compute is sent to, out of a timeline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from tests.unit.facts import naming

from inferprof.errors import CaseFailed
from inferprof.profilers import nsys
from inferprof.tables.counters.ncu_choice import Kernel, choose
from inferprof.tables.schema import conform
from inferprof.tables.trace.kernel_class import own_name


def timeline(*kernels: tuple[str, float, int], inside: str = "iteration > stage:execute") -> pd.DataFrame:
    """Kernels by (name, ns in all iterations, launch configurations), in two iterations."""
    rows = [
        {"level": "kernel", "name": name, "range": inside, "instances": 2, "metric": "duration_total", "value": time}
        for name, time, _ in kernels
    ]
    number = 0
    for name, _, configs in kernels:
        for _ in range(configs):
            place = {"level": "launch_config", "name": name, "launch": number, "instances": 2}
            rows.append({**place, "metric": "symbol", "text": f"_Z{name}"})
            number += 1
    rows.append(
        {
            "level": "range",
            "name": "iteration",
            "instances": 2,
            "metric": "duration_total",
            "value": 1e6,
            "range": None,
        }
    )
    return conform(pd.DataFrame(rows), "nsys")


def test_the_longest_are_taken_until_they_have_four_fifths_of_the_kernel_time() -> None:
    choice = choose(timeline(("small", 10, 1), ("large", 60, 1), ("middle", 25, 2), ("tiny", 5, 1)))
    assert choice.kernels == (Kernel("large", ("_Zlarge",), 1), Kernel("middle", ("_Zmiddle",), 2))
    assert choice.share == pytest.approx(0.85)


def test_no_more_launches_than_the_limit_and_those_behind_take_the_room() -> None:
    choice = choose(timeline(("a", 40, 2), ("b", 30, 3), ("c", 20, 1), ("d", 10, 1)), limit=4)
    assert [kernel.name for kernel in choice.kernels] == ["a", "c", "d"]
    assert choice.share == pytest.approx(0.7)


def test_the_longest_kernel_is_taken_however_many_grids_it_has() -> None:
    choice = choose(timeline(("a", 90, 20), ("b", 10, 1)), limit=12)
    assert [kernel.configs for kernel in choice.kernels] == [20]


def test_kernels_outside_of_iterations_do_not_count() -> None:
    frame = timeline(("a", 60, 1), ("b", 40, 1))
    frame.loc[(frame["level"] == "kernel") & (frame["name"] == "a"), "range"] = "warmup"
    assert [kernel.name for kernel in choose(frame).kernels] == ["b"]


def test_a_timeline_without_launch_configurations_gives_names_alone() -> None:
    frame = timeline(("a", 60, 0), ("b", 40, 0))
    assert choose(frame).kernels == (Kernel("a", (), 1), Kernel("b", (), 1))


def test_a_timeline_of_whole_graphs_is_refused(captured: Callable[[str], Path]) -> None:
    frame = nsys.read(captured("h100_torch_graph_trace"))
    with pytest.raises(CaseFailed, match=naming("CUDA graphs", "by node")):
        choose(frame[(frame["level"] != "kernel") & (frame["level"] != "launch_config")])


def test_the_kernels_of_a_real_eager_run(captured: Callable[[str], Path]) -> None:
    """The longest by `SELECT demangledName, SUM(end - start)` on the export."""
    choice = choose(nsys.read(captured("h100_torch_eager")))
    assert [own_name(kernel.name) for kernel in choice.kernels] == [
        "at::native::anonymous::vectorized_layer_norm_kernel",
        "nvjet_sm90_hsh_64x64_64x13_1x4_h_bz_bias_TNT",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0",
        "implicit_convolve_sgemm",
        "nvjet_sm90_hsh_128x72_64x8_1x2_h_bz_bias_TNT",
        "nvjet_sm90_hsh_64x160_64x7_4x2_h_bz_bias_TNT",
    ]
    assert choice.kernels[3].symbols == (
        "_Z23implicit_convolve_sgemmI6__halfS0_Li128ELi5ELi5ELi3ELi3ELi3ELi1ELb0ELb0ELb1EEviiiPKT_iPT0_S3_"
        "18kernel_conv_paramsyiffiPKS4_S8_bbii",
    )
    assert choice.share == pytest.approx(0.8339, abs=1e-4)
