"""What holds for the statistics of any samples: against SciPy's, under order, scale and direction, and coverage."""

from __future__ import annotations

import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings

from inferprof import stats
from inferprof.model import accuracy
from inferprof.tables.limits import saturation

MIRRORED = {"faster": "slower", "slower": "faster", "same": "same", "undecided": "undecided"}

whole = st.integers(1_000, 1_000_000)
"""A time in whole ns: sums and doubles of them are exact."""
series = st.lists(whole, min_size=1, max_size=60)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def paired(draw: st.DrawFn, least: int = 2) -> tuple[list[list[int]], list[list[int]]]:
    """The rounds of two cases, A and B."""
    count = draw(st.integers(least, 6))
    rounds = st.lists(st.lists(whole, min_size=1, max_size=12), min_size=count, max_size=count)
    return draw(rounds), draw(rounds)


def walk(seed: int, n: int = 100) -> np.ndarray:
    """Correlated times with a trend."""
    rng = np.random.default_rng(seed)
    return 1e6 + np.cumsum(rng.normal(rng.normal(0, 300), 2_000, n))


# --- of one series ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [*range(1, 80), 299, 1_000, 4_999])
def test_the_ranks_of_the_medians_interval_are_scipys_quantiles_of_the_binomial_distribution(n):
    assert stats._median_rank(n) == scipy.stats.binom.ppf(0.025, n, 0.5)


@pytest.mark.parametrize("n", [6, 7, 8, 20, 65, 500])
def test_the_interval_of_the_median_covers_in_95_percent_and_the_next_narrower_one_does_not(n):
    rank = stats._median_rank(n)
    outside = [2 * scipy.stats.binom.cdf(k - 1, n, 0.5) for k in (rank, rank + 1)]
    assert outside[0] <= 0.05 < outside[1]


@pytest.mark.parametrize("draw", ["exponential", "standard_cauchy", "normal"])
def test_the_interval_of_the_median_covers_it_whatever_the_samples_are_drawn_from(draw):
    samples = getattr(np.random.default_rng(11), draw)(size=(600, 15))
    middle = math.log(2) if draw == "exponential" else 0.0
    intervals = [stats.median_interval(series) or (math.nan, math.nan) for series in samples]
    covered = sum(low <= middle <= high for low, high in intervals)
    assert 0.95 * 600 <= covered < 600  # exact is 96.5 %: 579, of which 4.5 is one standard deviation


@given(st.lists(whole, min_size=6, max_size=19))
def test_the_interval_of_few_samples_is_scipys_and_their_order_does_not_matter(samples):
    expected = scipy.stats.quantile_test(samples, p=0.5).confidence_interval(0.95)
    assert stats.median_interval(samples) == (expected.low, expected.high)
    ordered, summary = stats.summarize(sorted(samples)), stats.summarize(samples)
    assert (ordered.median, ordered.interval, ordered.max) == (summary.median, summary.interval, summary.max)


@pytest.mark.parametrize("p", stats.PERCENTILES.values())
def test_a_percentile_needs_the_fewest_samples_of_which_one_lies_above_it_in_95_percent(p):
    needed = stats.samples_needed(p)
    assert scipy.stats.binom.sf(0, needed, 1 - p) >= 0.95 > scipy.stats.binom.sf(0, needed - 1, 1 - p)


@given(series)
def test_of_times_twice_as_long_all_that_is_a_time_is_twice_as_long_and_nothing_else_changes(samples):
    before, after = stats.summarize(samples), stats.summarize([2 * ns for ns in samples])
    assert (after.n, after.cov, after.effective_n) == (before.n, before.cov, before.effective_n)
    times = ("min", "max", "median", "mean", "p90", "p95")
    assert [getattr(after, name) for name in times] == [
        None if (ns := getattr(before, name)) is None else 2 * ns for name in times
    ]
    assert after.interval == (before.interval and tuple(2 * ns for ns in before.interval))
    assert stats.spread([2 * ns for ns in samples]) == stats.spread(samples)


@given(series, whole)
def test_what_every_sample_takes_longer_the_median_and_its_interval_do_too(samples, more):
    before, after = stats.summarize(samples), stats.summarize([ns + more for ns in samples])
    assert after.median == before.median + more
    assert after.interval == (before.interval and tuple(ns + more for ns in before.interval))
    assert after.effective_n == before.effective_n
    if before.cov:
        assert after.cov is not None and after.cov < before.cov


@given(series, st.data())
def test_no_sample_that_takes_longer_makes_a_summary_shorter(samples, data):
    place, more = data.draw(st.integers(0, len(samples) - 1)), data.draw(whole)
    longer = [*samples[:place], samples[place] + more, *samples[place + 1 :]]
    before, after = stats.summarize(samples), stats.summarize(longer)
    for name in ("min", "max", "median", "mean", "p90", "p95"):
        assert getattr(before, name) is None or getattr(before, name) <= getattr(after, name)


@given(seeds)
def test_a_series_read_backwards_is_as_correlated_and_drifts_the_other_way(seed):
    samples = walk(seed)
    forth, back = stats.drift(samples), stats.drift(samples[::-1])
    assert stats.effective_size(samples[::-1]) == pytest.approx(stats.effective_size(samples))
    assert forth is not None and back is not None
    assert back.change == pytest.approx(-forth.change)
    assert (back.significant, back.p_value) == (forth.significant, forth.p_value)


@given(seeds)
def test_a_drift_is_scipys_slope_of_theil_and_sen_and_its_test_that_of_kendall(seed):
    samples = walk(seed)
    medians = [np.median(block) for block in np.array_split(samples, stats.BLOCKS)]
    drift = stats.drift(samples)
    assert drift is not None
    slope = scipy.stats.theilslopes(medians).slope
    assert drift.change == pytest.approx(slope * (stats.BLOCKS - 1) / np.median(medians), rel=1e-12)
    assert (drift.p_value is None) == (abs(drift.change) < stats.DRIFT_MINIMUM)
    expected = scipy.stats.kendalltau(range(stats.BLOCKS), medians).pvalue
    assert drift.significant == (drift.p_value is not None and expected < stats.DRIFT_P_VALUE)


@given(series, st.integers(1, 30))
def test_blocks_are_numpys_split_of_a_series(samples, blocks):
    expected = [np.median(block) for block in np.array_split(samples, min(blocks, len(samples)))]
    assert stats.block_medians(samples, blocks).tolist() == expected


# --- of two cases ----------------------------------------------------------------------------------------------


@given(paired())
def test_the_interval_of_a_ratio_is_scipys_of_students_test_of_the_rounds_logarithms(rounds):
    a, b = rounds
    logs = [math.log(np.median(of_b) / np.median(of_a)) for of_a, of_b in zip(a, b, strict=True)]
    ratio = stats.ratio(a, b)
    if np.ptp(logs) > 1e-9:
        expected = scipy.stats.ttest_1samp(logs, 0).confidence_interval(0.95)
        assert (math.log(ratio.low), math.log(ratio.high)) == pytest.approx(tuple(expected), abs=1e-9)
    assert ratio.low <= ratio.estimate * (1 + 1e-12) and ratio.estimate <= ratio.high * (1 + 1e-12)


@given(paired(least=1))
def test_the_other_way_round_a_ratio_is_its_inverse_with_the_other_verdict(rounds):
    a, b = rounds
    there, back = stats.ratio(a, b), stats.ratio(b, a)
    assert back.estimate == pytest.approx(1 / there.estimate)
    assert (back.low, back.high) == pytest.approx((1 / there.high, 1 / there.low if there.low else math.inf))
    assert back.detectable == pytest.approx(there.detectable)
    assert back.verdict == MIRRORED[there.verdict]


@given(paired(), st.randoms(use_true_random=False))
def test_neither_the_order_of_rounds_nor_what_a_round_shares_changes_a_ratio(rounds, random):
    pairs = list(zip(*rounds, strict=True))
    before = stats.ratio(*rounds)
    random.shuffle(pairs)
    weather = [[[2**place * ns for ns in samples] for samples in pair] for place, pair in enumerate(pairs)]
    after = stats.ratio([a for a, _ in weather], [b for _, b in weather])
    numbers = [(ratio.estimate, ratio.low, ratio.high, ratio.detectable) for ratio in (before, after)]
    assert numbers[0] == pytest.approx(numbers[1])


@given(paired(), st.sampled_from([0.5, 2.0, 8.0]))
def test_a_case_that_takes_k_times_as_long_has_k_times_the_ratio_and_as_narrow_an_interval(rounds, factor):
    a, b = rounds
    before, after = stats.ratio(a, b), stats.ratio(a, [[factor * ns for ns in samples] for samples in b])
    assert (after.estimate, after.low, after.high) == pytest.approx(
        (factor * before.estimate, factor * before.low, factor * before.high)
    )
    assert after.detectable == pytest.approx(before.detectable)


@given(paired(least=1), st.sampled_from([0.001, 0.01, 0.1, 1.0]))
def test_a_larger_threshold_takes_no_verdict_of_same_back_and_adds_none_of_a_difference(rounds, threshold):
    a, b = rounds
    narrow, wide = (stats.ratio(a, b, limit) for limit in (threshold, 2 * threshold))
    assert narrow.verdict != "same" or wide.verdict == "same"
    assert wide.verdict not in ("faster", "slower") or wide.verdict == narrow.verdict
    if wide.verdict in ("faster", "slower"):
        assert not wide.low <= 1 <= wide.high
        assert abs(math.log(wide.estimate)) >= math.log1p(2 * threshold)


def test_the_interval_over_rounds_covers_the_ratio_in_95_percent():
    rng = np.random.default_rng(12)
    logs = rng.normal(math.log(1.1), 0.02, size=(600, 4))
    ratios = [stats.ratio([[1.0]] * 4, [[value] for value in np.exp(row)]) for row in logs]
    assert 553 <= sum(ratio.low <= 1.1 <= ratio.high for ratio in ratios) <= 587  # 570, and three standard deviations


# --- of batches and of similarities ----------------------------------------------------------------------------


@settings(max_examples=25)
@given(st.lists(st.sampled_from([1, 2, 4, 8, 16, 32]), min_size=2, max_size=5, unique=True), seeds)
def test_a_saturation_point_is_a_measured_batch_within_its_interval_whatever_the_clock_counts(batches, seed):
    rng = np.random.default_rng(seed)
    rounds = {batch: [batch ** rng.uniform(0, 1) * rng.gamma(50, 20_000, 24) for _ in range(2)] for batch in batches}
    point = saturation.saturation(rounds)
    assert {point["low"], point["batch"], point["high"], point["peak_batch"]} <= set(batches)
    assert point["low"] <= point["batch"] <= point["high"] and point["batch"] <= point["peak_batch"]
    assert (point["smallest"], point["batches"]) == (min(batches), len(batches))
    slower = saturation.saturation({batch: [4 * own for own in samples] for batch, samples in rounds.items()})
    assert slower == {**point, "peak_items_per_s": point["peak_items_per_s"] / 4}


@pytest.mark.parametrize(("power", "batch"), [(0.0, 8), (1.0, 1)])
def test_throughput_that_grows_with_the_batch_saturates_at_the_last_and_one_that_does_not_at_the_first(power, batch):
    rounds = {size: [[size**power * 1e6] * 30] for size in (1, 2, 4, 8)}
    point = saturation.saturation(rounds)
    assert (point["low"], point["batch"], point["high"]) == (batch, batch, batch)


@given(seeds, st.integers(3, 12))
def test_a_ranking_survives_that_samples_change_places_and_that_the_space_is_turned(seed, count):
    rng = np.random.default_rng(seed)
    a, b = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in rng.normal(size=(2, count, 8)))
    ranked = accuracy.ranking(a, b)
    order = rng.permutation(count)
    turn = np.linalg.qr(rng.normal(size=(8, 8)))[0]
    for other in (accuracy.ranking(a[order], b[order]), accuracy.ranking(a @ turn, b)):
        assert other["spearman"] == pytest.approx(ranked["spearman"])
        assert other["shared_neighbours"] == pytest.approx(ranked["shared_neighbours"])
    assert accuracy.ranking(a, a @ turn)["spearman"] == pytest.approx(1)


def test_blocks_of_a_bootstrap_are_those_of_the_rounds_that_were_drawn():
    """Of rounds of unlike lengths no block of the padding is drawn: its 0 ns would be the fastest."""
    rounds = {batch: [np.full(n, 1e6 * batch) for n in lengths] for batch, lengths in ((1, (3, 40)), (2, (40, 5)))}
    points = [saturation.saturation(rounds, seed) for seed in range(5)]
    assert [(point["low"], point["batch"], point["high"]) for point in points] == list(itertools.repeat((1, 1, 1), 5))
