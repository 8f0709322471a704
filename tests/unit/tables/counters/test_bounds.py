"""What bounds a kernel, by counters."""

import pytest

from inferprof.tables.counters import bounds


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
        ({"sm_throughput": 30.0, "memory_throughput": 85.0, "tail_waste": 37.5}, {"memory": 1.0}),
        ({"sm_throughput": 80.0, "memory_throughput": 30.0, "tail_waste": 0.0}, {"compute": 1.0, "tail": 0.0}),
        ({"sm_throughput": 20.0, "memory_throughput": 30.0}, {"latency": 1.0, "tail": 0.0}),
        # 40 % on average over two waves, of which the second has a quarter of its places taken: 64 % while filled
        ({"sm_throughput": 40.0, "memory_throughput": 30.0, "tail_waste": 37.5}, {"compute": 0.625, "tail": 0.375}),
        ({"sm_throughput": 30.0, "memory_throughput": 40.0, "tail_waste": 37.5}, {"memory": 0.625, "tail": 0.375}),
        ({"sm_throughput": 10.0, "memory_throughput": 10.0, "tail_waste": 37.5}, {"latency": 0.625, "tail": 0.375}),
    ],
)
def test_a_kernel_is_bound_by_the_roof_that_it_is_near(metrics, shares):
    assert bounds.of_launch(metrics) == shares
