from __future__ import annotations

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from tests.unit.facts import facts, mentions, naming, states

from inferprof import stats


def ar1(rng: np.random.Generator, n: int, phi: float = 0.7):
    noise = rng.normal(0, 0.01, n)
    for i in range(1, n):
        noise[i] += phi * noise[i - 1]
    return noise


def a_round(rng: np.random.Generator, weather: float, slowdown: float = 1.0, n: int = 200):
    """A process of its own: what the round shares, what the process adds, autocorrelated noise and a drift."""
    own = rng.normal(0, 0.004)
    slope = np.linspace(0, 0.01, n)
    return 1e6 * slowdown * np.exp(weather + own + ar1(rng, n) + slope)


def pair(rng, rounds: int, slowdown: float = 1.0) -> stats.Ratio:
    weather = np.cumsum(rng.normal(0, 0.03, rounds))  # the machine warms up, a neighbour comes and goes
    a = [a_round(rng, w) for w in weather]
    b = [a_round(rng, w, slowdown) for w in weather]
    return stats.ratio(a, b)


def test_the_summary_of_known_samples_is_exact():
    summary = stats.summarize([4.0, 1.0, 3.0, 2.0, 10.0])
    assert (summary.n, summary.min, summary.median, summary.mean) == (5, 1.0, 3.0, 4.0)
    assert summary.cov == pytest.approx(math.sqrt(12.5) / 4)
    assert summary.interval is None
    assert (summary.p90, summary.p99_9) == (None, None)


def test_no_samples_are_an_error():
    with pytest.raises(ValueError, match="no samples"):
        stats.summarize([])


@pytest.mark.parametrize(("p", "n"), [(0.90, 29), (0.95, 59), (0.99, 299), (0.999, 2995)])
def test_a_percentile_needs_as_many_samples_as_wilks_says(p, n):
    assert stats.samples_needed(p) == n


def test_percentiles_appear_with_enough_samples():
    values = np.random.default_rng(0).permutation(np.arange(1.0, 302.0))
    summary = stats.summarize(values)
    assert (summary.p90, summary.p95, summary.p99) == (271.0, 286.0, 298.0)
    assert summary.p99_9 is None


@pytest.mark.parametrize("n", [6, 7, 10, 15, 19])
def test_the_interval_of_the_median_is_scipys_quantile_test(n):
    values = np.random.default_rng(n).normal(100, 5, n)
    expected = scipy.stats.quantile_test(values, p=0.5).confidence_interval(0.95)
    assert stats.median_interval(values) == (expected.low, expected.high)


@pytest.mark.parametrize("n", [6, 100, 999, 10_000])
def test_the_ranks_are_those_of_the_binomial_distribution(n):
    ranks = np.arange(1, n // 2 + 1)
    expected = ranks[scipy.stats.binom.cdf(ranks - 1, n, 0.5) <= 0.025].max()
    assert stats._median_rank(n) == expected


def test_below_six_samples_the_median_has_no_interval():
    assert stats.median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None


def test_autocorrelated_samples_count_for_less():
    rng = np.random.default_rng(1)
    independent = stats.effective_size(rng.normal(0, 1, 2000))
    correlated = stats.effective_size(ar1(rng, 2000, phi=0.9))
    assert independent > 1500
    assert correlated < 400  # the mean's would be 2000 * (1 - 0.9) / (1 + 0.9) = 105


def test_the_interval_of_the_median_covers_the_median_of_autocorrelated_samples():
    rng = np.random.default_rng(2)
    intervals = [stats.median_interval(ar1(rng, 500)) for _ in range(200)]
    assert sum(i is not None and i[0] <= 0 <= i[1] for i in intervals) >= 180


def test_constant_samples_have_an_interval_of_no_width():
    assert stats.median_interval([7.0] * 50) == (7.0, 7.0)


def test_the_spread_of_two_speeds_is_their_ratio_and_one_interruption_is_none():
    assert stats.spread([100.0] * 24 + [150.0] * 8) == 1.5
    assert stats.spread([100.0] * 31 + [5_000.0]) == 1.0
    assert stats.spread(list(range(100, 201, 10))) == pytest.approx(190 / 110)


def test_of_fewer_than_ten_samples_there_is_no_spread():
    assert stats.spread([100.0] * 9) is None
    assert stats.spread([100.0] * 10) == 1.0


def test_a_drift_is_found_with_its_size():
    values = 100 + np.linspace(0, 5, 400) + np.random.default_rng(3).normal(0, 0.5, 400)
    found = stats.drift(values)
    assert found is not None
    assert found.significant
    assert found.change == pytest.approx(0.05, abs=0.005)


def test_autocorrelated_noise_is_no_drift():
    rng = np.random.default_rng(4)
    drifts = [stats.drift(1 + ar1(rng, 600)) for _ in range(100)]
    assert sum(d is not None and d.significant for d in drifts) <= 3


def test_a_constant_series_has_no_drift_and_a_short_one_is_not_judged():
    assert stats.drift([5.0] * 40) == stats.Drift(0.0, None, False)
    assert stats.drift([5.0] * 39) is None


def test_a_case_against_itself_has_a_ratio_whose_interval_contains_1_in_185_of_200_repeats():
    rng = np.random.default_rng(5)
    ratios = [pair(rng, rounds=5) for _ in range(200)]
    assert sum(r.low <= 1 <= r.high for r in ratios) >= 185
    assert sum(r.verdict in ("faster", "slower") for r in ratios) <= 5


def test_a_planted_slow_down_of_3_percent_is_found():
    rng = np.random.default_rng(6)
    ratios = [pair(rng, rounds=5, slowdown=1.03) for _ in range(100)]
    assert sum(r.verdict == "slower" for r in ratios) >= 95
    assert np.median([r.estimate for r in ratios]) == pytest.approx(1.03, abs=0.001)


def test_rounds_are_paired_so_that_what_they_share_cancels():
    result = stats.ratio([[100.0], [200.0], [400.0]], [[110.0], [220.0], [440.0]])
    assert (result.estimate, result.low, result.high) == pytest.approx((1.1, 1.1, 1.1))
    assert (result.verdict, result.rounds) == ("slower", 3)


def test_the_interval_over_rounds_is_students():
    a, b = [100.0, 100.0, 100.0], [101.0, 102.0, 103.0]
    logs = np.log(np.array(b) / 100)
    expected = scipy.stats.ttest_1samp(logs, 0).confidence_interval(0.95)
    result = stats.ratio([[x] for x in a], [[x] for x in b])
    assert (math.log(result.low), math.log(result.high)) == pytest.approx(tuple(expected))
    quantiles = scipy.stats.t.ppf(0.975, df=2) + scipy.stats.t.ppf(0.8, df=2)
    assert math.log(result.detectable) == pytest.approx(quantiles * scipy.stats.sem(logs))


def test_no_verdict_is_given_below_the_smallest_detectable_difference():
    result = stats.ratio([[100.0]] * 3, [[101.5], [102.0], [103.1]])
    assert result.low > 1
    assert result.estimate < result.detectable
    assert result.verdict == "undecided"
    assert states(result.reason, "smallest", "2.5%")


def test_a_difference_within_the_threshold_is_the_same():
    result = stats.ratio([[100.0]] * 3, [[100.1], [100.2], [100.1]])
    assert (result.verdict, facts(result.reason, "within")) == ("same", ["within", "±1.0%"])


def test_a_ratio_is_the_quotient_of_its_times():
    result = stats.ratio([[10.0], [10.0], [20.0]], [[10.0], [20.0], [20.0]])
    assert result.b / result.a == pytest.approx(result.estimate) == pytest.approx(2 ** (1 / 3))
    alone = stats.ratio([[10.1, 10.2, 10.3]] * 2, [[30.1, 30.2, 30.3]] * 2)
    assert (alone.a, alone.b) == (10.2, 30.2)


def test_an_interval_that_excludes_1_and_reaches_over_the_threshold_says_so():
    result = stats.ratio([[100.0]] * 5, [[100.7], [100.8], [100.9], [101.0], [101.2]])
    assert (result.verdict, result.low > 1, result.estimate < 1.01 < result.high) == ("undecided", True, True)
    assert mentions(result.reason, "over the threshold", "1.0%")


def test_noisy_rounds_are_undecided():
    result = stats.ratio([[100.0]] * 3, [[90.0], [100.0], [115.0]])
    assert result.verdict == "undecided"
    assert facts(result.reason) == ["1", "±1.0%", "smallest", "46.3%", "3"]


def test_one_round_is_judged_by_the_samples_within_and_says_so():
    rng = np.random.default_rng(7)
    a, b = np.exp(ar1(rng, 400)), 1.2 * np.exp(ar1(rng, 400))
    result = stats.ratio([a], [b])
    assert (result.verdict, result.rounds) == ("slower", 1)
    assert facts(result.reason, "samples") == ["above", "1", "one", "samples", "one"]
    assert result.low < 1.2 < result.high


def test_one_round_of_correlated_samples_against_itself_has_an_interval_that_contains_1():
    rng = np.random.default_rng(9)
    ratios = [stats.ratio([np.exp(ar1(rng, 500, 0.98))], [np.exp(ar1(rng, 500, 0.98))]) for _ in range(100)]
    assert sum(r.low <= 1 <= r.high for r in ratios) >= 88
    assert sum(r.verdict in ("faster", "slower") for r in ratios) <= 5


def test_a_ratio_of_one_round_is_no_surer_than_its_medians():
    rng = np.random.default_rng(10)
    a, b = np.exp(ar1(rng, 300, 0.9)), 2 * np.exp(ar1(rng, 300, 0.9))
    result = stats.ratio([a], [b])
    low, high = stats.median_interval(b) or (math.nan, math.nan)
    assert result.low < low / np.median(a) < high / np.median(a) < result.high
    low, high = stats.median_interval(a) or (math.nan, math.nan)
    assert result.low < np.median(b) / high < np.median(b) / low < result.high


def test_one_round_gives_no_verdict_on_a_small_difference_and_never_the_verdict_same():
    a = np.random.default_rng(8).normal(100, 0.1, 400)
    for factor in (1.0001, 1.03):
        result = stats.ratio([a], [a * factor])
        assert result.verdict == "undecided"
        assert facts(result.reason)[:3] == ["below", "5%", "one"]


def test_identical_samples_are_the_same_however_few():
    for rounds in ([[100.0]], [[100.0, 101.0], [99.0, 98.0]]):
        result = stats.ratio(rounds, rounds)
        assert (result.verdict, result.estimate, result.low, result.high) == ("same", 1.0, 1.0, 1.0)


def test_cases_are_far_apart_where_every_sample_of_one_is_ten_times_each_of_the_other():
    assert stats.far_apart([[100.0], [90.0]], [[1_000.0], [38_000.0]])
    assert stats.far_apart([[38_000.0]], [[100.0]])
    assert not stats.far_apart([[100.0, 9_000.0]], [[38_000.0, 38_000.0]])


def test_one_sample_each_decides_nothing():
    result = stats.ratio([[100.0]], [[200.0]])
    assert (result.estimate, result.low, result.high) == (2.0, 0.0, math.inf)
    assert result.verdict == "undecided"
    assert mentions(result.reason, "too few samples", "one round")


def test_unpaired_rounds_are_refused():
    with pytest.raises(ValueError, match=naming("2", "A", "1", "B")):
        stats.ratio([[1.0], [1.0]], [[1.0]])


@pytest.mark.parametrize("samples", [[math.nan, 1.0], [math.inf, 1.0], [0.0, 1.0], [-1.0, 1.0], []])
def test_samples_that_are_no_times_have_no_ratio(samples):
    for pair in (([samples], [[1.0, 2.0]]), ([[1.0, 2.0]], [samples])):
        with pytest.raises(ValueError, match="finite and above 0"):
            stats.ratio(*pair)


@given(st.lists(st.floats(1, 1e15), min_size=1, max_size=80))
def test_statistics_of_any_times_are_finite_and_in_order(samples):
    summary = stats.summarize(samples)
    assert summary.min <= summary.median <= summary.max
    assert summary.interval is None or summary.min <= summary.interval[0] <= summary.interval[1] <= summary.max
    assert 0 < summary.effective_n <= summary.n
    assert math.isfinite(summary.mean) and (summary.cov is None or math.isfinite(summary.cov))
    ratio = stats.ratio([samples], [samples])
    assert ratio.estimate == pytest.approx(1) and ratio.low <= 1 <= ratio.high
    spread = stats.spread(samples)
    assert (spread is None) == (len(samples) < stats.SPREAD_SAMPLES)
    assert spread is None or spread >= 1
    drift = stats.drift(samples)
    assert (drift is None) == (len(samples) < 2 * stats.BLOCKS)


def test_zeros_have_neither_a_spread_nor_a_drift():
    assert stats.spread([0.0] * 40) is None and stats.drift([0.0] * 40) is None
    assert stats.summarize([0.0] * 40).cov is None


def test_the_interval_of_a_quantile_holds_it_in_nine_of_ten_series_and_is_none_of_a_few_samples() -> None:
    rng = np.random.default_rng(0)
    truth = -np.log(0.05)
    intervals = [stats.quantile_interval(rng.exponential(1.0, 2000), 0.95) for _ in range(200)]
    held = sum(low <= truth <= high for low, high in filter(None, intervals))
    assert held >= 180
    assert stats.quantile_interval(rng.exponential(1.0, 50), 0.99) is None


def test_the_interval_of_a_quantile_is_wider_where_neighbours_are_alike() -> None:
    rng = np.random.default_rng(1)
    single = rng.exponential(1.0, 400)
    low, high = stats.quantile_interval(np.repeat(single, 10), 0.9) or (0, 0)
    alone = stats.quantile_interval(rng.exponential(1.0, 4000), 0.9) or (0, 0)
    assert high - low > 2 * (alone[1] - alone[0])
