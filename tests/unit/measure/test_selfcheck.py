from __future__ import annotations

import numpy as np
import pytest
from tests.unit.facts import facts

from inferprof.documents.record import SelfCheck
from inferprof.measure import selfcheck


@pytest.mark.parametrize(
    ("call_ns", "passed"),
    [(100_000, True), (99_100, True), (98_900, False), (50_000, False)],
)
def test_a_call_may_be_below_the_device_by_the_resolution_of_events_only(call_ns, passed):
    """Device 100 µs: 1 µs below it is 99 µs."""
    assert selfcheck.call_not_below_device(call_ns, 100_000).passed is passed


def test_the_call_check_gives_both_medians():
    check = selfcheck.call_not_below_device(1_234_500, 1_000_000)
    assert facts(check.detail) == ["call", "1234.5 µs", "device", "1000.0 µs"]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_counted_by_output(dtype, bad):
    array = np.array([1, bad, 3], dtype)
    check = selfcheck.outputs_finite({"good": np.ones(2, dtype), "bad": array})
    assert check == SelfCheck(False, "bad: 1 of 3 values are NaN or infinite")


def test_half_of_a_complex_number_that_is_not_finite_is_counted():
    check = selfcheck.outputs_finite({"y": np.array([1, complex(0, np.nan)], np.complex64)})
    assert check == SelfCheck(False, "y: 1 of 2 values are NaN or infinite")


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
def test_integers_and_booleans_are_finite(dtype):
    assert selfcheck.outputs_finite({"y": np.ones(3, dtype)}) == SelfCheck(True, "1 outputs")


def test_poison_is_told_from_a_value_that_is_the_same_bytes():
    all_255 = np.full(4, 255, np.uint8)
    assert selfcheck._fault(all_255, all_255) is None
    assert facts(selfcheck._fault(all_255, np.array([255, 255, 0, 1], np.uint8)), "poison") == ["poison", "2", "4"]


def test_an_output_of_another_shape_is_a_fault():
    assert facts(selfcheck._fault(np.zeros((2, 3)), np.zeros((3, 2))), "shape") == ["shape", "2", "3", "3", "2"]


def test_a_scalar_output_is_checked_too():
    poisoned = np.frombuffer(b"\xff" * 4, np.float32)[0:1].reshape(())
    assert facts(selfcheck._fault(poisoned, np.ones((), np.float32)), "poison") == ["poison", "1", "1"]


@pytest.mark.parametrize(
    ("array", "expected", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.1], [1.0, 2.0], 0.05),
        ([np.nan, 2.0], [np.nan, 2.0], 0.0),
        ([np.nan, 2.1], [np.nan, 2.0], 0.05),
        ([np.nan, 2.0], [1.0, 2.0], np.inf),
        ([0.5], [0.0], 0.5),
    ],
)
def test_two_runs_differ_by_the_largest_difference_relative_to_the_largest_value(array, expected, difference):
    assert selfcheck._difference(np.array(array), np.array(expected)) == pytest.approx(difference)
