"""What bounds a kernel, by counters."""

import pandas as pd
import pytest

from inferprof.tables import bounds, schema


def counted(rows: list[tuple[str, int, dict[str, float]]]) -> pd.DataFrame:
    """The rows that ncu's reader gives: (kernel, launch, metrics)."""
    flat = [
        {"level": "kernel", "name": name, "launch": launch, "metric": metric, "value": value}
        for name, launch, metrics in rows
        for metric, value in metrics.items()
    ]
    return schema.conform(pd.DataFrame(flat), "ncu")


@pytest.mark.parametrize(
    ("waves", "blocks", "sms", "waste"),
    [
        (2.25, 297, 132, 0.25),  # 2 full waves, and a third with 33 of 132 places taken
        (2.0, 264, 132, 0.0),
        (1.0, 132, 132, 0.0),
        (0.25, 132, 132, 0.0),  # each SM has one of the four blocks that it could hold
        (0.5, 66, 132, 0.5),
        (0.5, None, None, 0.0),
    ],
)
def test_the_last_wave_wastes_its_empty_places_and_below_one_wave_the_empty_sms(waves, blocks, sms, waste):
    assert bounds.last_wave_waste(waves, blocks, sms) == waste


@pytest.mark.parametrize(
    ("metrics", "shares"),
    [
        ({"sm_throughput": 30.0, "memory_throughput": 85.0, "waves": 1.25}, {"memory": 1.0}),
        ({"sm_throughput": 80.0, "memory_throughput": 30.0, "waves": 4.0}, {"compute": 1.0, "tail": 0.0}),
        ({"sm_throughput": 20.0, "memory_throughput": 30.0}, {"latency": 1.0, "tail": 0.0}),
        # 40 % on average over two waves, of which the second has a quarter of its places taken: 64 % while filled
        ({"sm_throughput": 40.0, "memory_throughput": 30.0, "waves": 1.25}, {"compute": 0.625, "tail": 0.375}),
        ({"sm_throughput": 30.0, "memory_throughput": 40.0, "waves": 1.25}, {"memory": 0.625, "tail": 0.375}),
        ({"sm_throughput": 10.0, "memory_throughput": 10.0, "waves": 1.25}, {"latency": 0.625, "tail": 0.375}),
    ],
)
def test_a_kernel_is_bound_by_the_roof_that_it_is_near(metrics, shares):
    assert bounds.of_launch(metrics) == shares


def test_launches_of_a_kernel_count_by_their_durations():
    busy = {"memory_throughput": 10.0, "waves": 1.0}
    frame = counted(
        [
            ("gemm", 0, {"duration_total": 300.0, "sm_throughput": 90.0, **busy}),
            ("gemm", 1, {"duration_total": 100.0, "sm_throughput": 20.0, **busy}),
        ]
    )
    assert bounds.by_kernel(frame).of("gemm") == {"compute": 0.75, "tail": 0.0, "latency": 0.25}


def test_a_name_that_is_spelt_differently_is_found_by_what_stands_before_its_arguments():
    metrics = {"duration_total": 300.0, "sm_throughput": 90.0, "memory_throughput": 10.0}
    found = bounds.by_kernel(counted([("void at::softmax<(int)4>(float *)", 0, metrics)]))
    assert found.of("void at::softmax<4>(float*)") == {"compute": 1.0, "tail": 0.0}
    assert found.of("void at::layer_norm<4>(float*)") is None


def test_a_launch_without_a_throughput_bounds_nothing():
    assert bounds.by_kernel(counted([("gemm", 0, {"duration_total": 300.0, "waves": 1.0})])).exact == {}
