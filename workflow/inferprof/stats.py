"""Statistics of latency samples: summaries, intervals, drift, and ratios paired by round.

Latencies are skewed and autocorrelated, so everything rests on medians, on order statistics and on blocks or rounds,
never on the normal distribution of single samples. Samples are in nanoseconds; ratios are time of B / time of A.
SciPy is imported where it is needed: the loop of `timing` uses this module on machines that have NumPy alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from inferprof.case import THRESHOLD

CONFIDENCE = 0.95
POWER = 0.8
"""Chance of finding a difference of the smallest detectable size."""
ONE_ROUND_THRESHOLD = 0.05
"""The smallest difference that one round is trusted with: one process each cannot show how much processes differ
(clocks, memory layout, choice of kernels), so less proves nothing about the cases."""
FEWEST = 6
"""Independent samples that a median's interval needs: the smallest and largest of five enclose the median in 94 %."""
BLOCKS = 20
"""Blocks of consecutive samples that drift is judged by."""
FAR = 10.0
"""Ours: where every sample of one case is so many times each of the other, no doubt about the samples can turn which
of the two is faster. A rented host varied in speed by 1.9."""
DRIFT_P_VALUE = 0.01
DRIFT_MINIMUM = 0.01
"""Smallest relative change from start to end that is called a drift."""
PERCENTILES = {"p90": 0.90, "p95": 0.95, "p99": 0.99, "p99_9": 0.999}
SPREAD_SAMPLES = 10
"""With fewer than these the tenth and the ninetieth percentile are the extremes, which one interruption makes."""

IDENTICAL = "the samples are identical"
Samples = Sequence[float] | np.ndarray[Any, Any]
Verdict = Literal["faster", "slower", "same", "undecided"]


# --- one run ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """What a series of samples says. A percentile is None where it needs more samples than there are."""

    n: int
    min: float
    max: float
    median: float
    mean: float
    p90: float | None
    p95: float | None
    p99: float | None
    p99_9: float | None
    cov: float | None
    """Coefficient of variation: sample standard deviation / mean; None for a single sample."""
    interval: tuple[float, float] | None
    """95 % interval of the median; None where there are too few independent samples."""
    effective_n: float
    """How many independent samples tell as much about the median as these do."""


def summarize(samples: Samples) -> Summary:
    """The summary of at least one sample; raises ValueError for none, and for NaN or infinity."""
    values = np.asarray(samples, dtype=float)
    if values.size == 0:
        raise ValueError("no samples to summarize")
    if not np.isfinite(values).all():
        raise ValueError("samples must be finite")
    tails = {
        name: float(np.quantile(values, p)) if values.size >= samples_needed(p) else None
        for name, p in PERCENTILES.items()
    }
    return Summary(
        n=values.size,
        min=float(values.min()),
        max=float(values.max()),
        median=float(np.median(values)),
        mean=float(values.mean()),
        cov=float(values.std(ddof=1) / values.mean()) if values.size > 1 and values.mean() else None,
        interval=median_interval(values),
        effective_n=effective_size(values),
        **tails,
    )


def samples_needed(p: float) -> int:
    """The number of samples from which on the largest one lies above the percentile with 95 % confidence.

    1 - p**n >= 0.95 (Wilks 1941): 29 for p90, 59 for p95, 299 for p99, 2995 for p99.9. With fewer samples the
    percentile would be a guess from beyond the data.
    """
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(p))


def median_interval(samples: Samples) -> tuple[float, float] | None:
    """95 % interval of the median by order statistics (binomial ranks), None below FEWEST independent samples.

    The ranks are those of `effective_size` samples, spread over all of them: autocorrelation widens the interval,
    and a series that drifts all the way has no narrow one.
    """
    values = np.sort(np.asarray(samples, dtype=float))
    independent = math.floor(effective_size(samples))
    rank = _median_rank(independent)
    if rank == 0:
        return None
    place = (rank - 1) / (independent - 1) * (values.size - 1)
    return float(values[math.floor(place)]), float(values[math.ceil(values.size - 1 - place)])


@functools.lru_cache(maxsize=4096)
def _median_rank(n: int) -> int:
    """The rank r such that the r-th smallest and r-th largest of n samples enclose the median with 95 %; 0: none."""
    k = np.arange(1, n + 1)
    log_binomial = np.concatenate([[0.0], np.cumsum(np.log((n - k + 1) / k))]) - n * math.log(2)
    return int(np.searchsorted(np.cumsum(np.exp(log_binomial)), (1 - CONFIDENCE) / 2, side="right"))


def quantile_interval(samples: Samples, p: float) -> tuple[float, float] | None:
    """95 % interval of a quantile by order statistics of `effective_size` samples; None where there are too few."""
    from scipy import stats

    values = np.asarray(samples, dtype=float)
    independent = math.floor(effective_size(values, p))
    tail = (1 - CONFIDENCE) / 2
    low, high = stats.binom.ppf([tail, 1 - tail], independent, p)
    if low < 1 or high + 1 > independent:
        return None
    between = np.quantile(values, [(low - 1) / (independent - 1), high / (independent - 1)])
    return float(between[0]), float(between[1])


def effective_size(samples: Samples, p: float = 0.5) -> float:
    """n / τ, with τ the integrated autocorrelation time of "is above the quantile p", the median, at most n.

    The sum over lags ends where a pair of neighbouring lags turns negative (Geyer 1992, initial positive sequence).
    Below 20 samples autocorrelation cannot be told from chance, and n is returned.
    """
    values = np.asarray(samples, dtype=float)
    above = (values > np.quantile(values, p)).astype(float)
    above -= above.mean()
    n = values.size
    if n < 20 or not above.any():
        return float(n)
    spectrum = np.fft.rfft(above, 2 * n)
    correlation = np.fft.irfft(np.abs(spectrum) ** 2)[: n - n % 2]
    pairs = (correlation / correlation[0]).reshape(-1, 2).sum(axis=1)
    end = int(np.argmax(pairs <= 0)) if (pairs <= 0).any() else pairs.size
    return float(n / max(2 * pairs[:end].sum() - 1, 1.0))


def spread(samples: Samples) -> float | None:
    """90th percentile / 10th percentile, both interpolated linearly; None below SPREAD_SAMPLES.

    Of a machine with two speeds it is their ratio, once each holds for more than a tenth of the samples. None where a
    tenth is 0, too.
    """
    if len(samples) < SPREAD_SAMPLES:
        return None
    low, high = np.quantile(np.asarray(samples, dtype=float), (0.1, 0.9))
    return float(high / low) if low > 0 else None


@dataclass(frozen=True)
class Drift:
    """Whether latency changed from start to end. `change` is relative: 0.05 is 5 % slower at the end.

    `p_value` is None where the change is smaller than DRIFT_MINIMUM: whether it is chance does not matter then.
    """

    change: float
    p_value: float | None
    significant: bool


def drift(samples: Samples) -> Drift | None:
    """Theil–Sen slope and Mann–Kendall test over the medians of 20 consecutive blocks; None below 40 samples.

    Blocks, because neighbouring samples are correlated, and a test of single samples would take that for a trend.
    """
    if len(samples) < 2 * BLOCKS:
        return None
    medians = block_medians(samples)
    first, second = np.triu_indices(BLOCKS, 1)
    slope = np.median((medians[second] - medians[first]) / (second - first))
    if not np.median(medians):
        return None
    change = float(slope * (BLOCKS - 1) / np.median(medians))
    if abs(change) < DRIFT_MINIMUM:
        return Drift(change, None, False)
    from scipy import stats

    p_value = float(stats.kendalltau(np.arange(BLOCKS), medians).pvalue)
    return Drift(change, p_value, p_value < DRIFT_P_VALUE)


def drifted(samples: Samples) -> float | None:
    """The relative change from start to end of `drift`, where it is more than chance."""
    change = drift(samples)
    return change.change if change and change.significant else None


def block_medians(samples: Samples, blocks: int = BLOCKS) -> np.ndarray[Any, Any]:
    """The medians of at most `blocks` blocks of consecutive samples, the first of them longer by one."""
    values = np.asarray(samples, dtype=float)
    blocks = min(blocks, values.size)
    size, longer = divmod(values.size, blocks)
    head, tail = np.split(values, [longer * (size + 1)])
    parts = head.reshape(longer, size + 1), tail.reshape(blocks - longer, size)
    return np.concatenate([np.median(part, axis=1) for part in parts])


# --- two cases -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ratio:
    """Time of B / time of A with its 95 % interval. `verdict` is about B: above 1 it is slower.

    a, b: geometric means of the rounds' medians, in the samples' unit; the estimate is their quotient.
    """

    a: float
    b: float
    estimate: float
    low: float
    high: float
    detectable: float
    """Smallest ratio above 1 that these rounds find with a chance of 80 %."""
    rounds: int
    verdict: Verdict
    reason: str


def ratio(a_rounds: Sequence[Samples], b_rounds: Sequence[Samples], threshold: float = THRESHOLD) -> Ratio:
    """Compare two cases by their samples per round; the i-th rounds of both belong together.

    What a round shares (temperature, clocks, neighbours) cancels in its ratio, so the interval is Student's over the
    rounds' log ratios of medians. With one round it comes from the intervals of the two medians, and `reason` says
    so. `threshold` is the relative difference that matters. Raises ValueError where the numbers of rounds differ or
    are 0, and for samples that are no times.
    """
    if len(a_rounds) != len(b_rounds) or not a_rounds:
        raise ValueError(f"rounds must be paired: {len(a_rounds)} of A, {len(b_rounds)} of B")
    if not all(_are_times(samples) for samples in (*a_rounds, *b_rounds)):
        raise ValueError("samples must be finite and above 0")
    a, b = (np.array([np.median(samples) for samples in rounds]) for rounds in (a_rounds, b_rounds))
    # Means relative to the first, so that equal medians keep their last digit.
    mean_a, mean_b = (float(medians[0] * np.exp(np.log(medians / medians[0]).mean())) for medians in (a, b))
    if all(map(np.array_equal, a_rounds, b_rounds)):
        return Ratio(mean_a, mean_b, 1.0, 1.0, 1.0, 1.0, len(a_rounds), "same", IDENTICAL)
    logs = np.log(b / a)
    estimate = float(logs.mean())
    if len(logs) == 1:
        low, high, detectable = _one_round(a_rounds[0], b_rounds[0])
        verdict, why = _judge_one_round(estimate, (low, high), detectable, threshold)
    else:
        low, high, detectable = _student(logs)
        verdict, why = _judge(estimate, (low, high), detectable, threshold)
        why += f"; {len(logs)} rounds" if verdict == "undecided" else ""
    exp = math.exp
    return Ratio(mean_a, mean_b, exp(estimate), exp(low), exp(high), exp(detectable), len(logs), verdict, why)


def far_apart(a_rounds: Sequence[Samples], b_rounds: Sequence[Samples]) -> bool:
    """Whether every sample of one case is FAR times each sample of the other, or more."""
    ends = [(min(map(np.min, rounds)), max(map(np.max, rounds))) for rounds in (a_rounds, b_rounds)]
    (a_least, a_most), (b_least, b_most) = ends
    return bool(b_least >= FAR * a_most or a_least >= FAR * b_most)


def is_told(value: float, low: float | None, high: float | None) -> bool:
    """Whether a ratio is known better than to itself, ± 100 %, as far as its interval is known at all."""
    return low is None or high is None or max(high - value, value - low) < value


def _are_times(samples: Samples) -> bool:
    values = np.asarray(samples, dtype=float)
    return values.size > 0 and bool(np.isfinite(values).all() and values.min() > 0)


def _student(logs: np.ndarray[Any, Any]) -> tuple[float, float, float]:
    """Interval and smallest detectable difference of the mean of log ratios."""
    from scipy import stats

    freedom, error = len(logs) - 1, float(stats.sem(logs))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
    detectable = half + float(stats.t.ppf(POWER, freedom)) * error
    return float(logs.mean()) - half, float(logs.mean()) + half, detectable


def _one_round(a: Samples, b: Samples) -> tuple[float, float, float]:
    """The same for one round each, from the intervals of both medians (MOVER: Zou and Donner 2008).

    So a ratio is never surer than its medians. Neighbouring samples are correlated: of 200 simulated pairs of AR(1)
    series with a coefficient of 0.98 this covers 1 in 92 %, a bootstrap over 20 blocks in 68 %.
    """
    from scipy import stats

    if min(len(a), len(b)) < FEWEST:
        return -math.inf, math.inf, math.inf
    a_low, a_middle, a_high = _log_interval(a)
    b_low, b_middle, b_high = _log_interval(b)
    below, above = math.hypot(b_middle - b_low, a_high - a_middle), math.hypot(b_high - b_middle, a_middle - a_low)
    estimate = b_middle - a_middle
    confident = stats.norm.ppf((1 + CONFIDENCE) / 2)
    detectable = (below + above) / 2 * float((confident + stats.norm.ppf(POWER)) / confident)
    return estimate - below, estimate + above, detectable


def _log_interval(samples: Samples) -> tuple[float, float, float]:
    """The logarithms of a median and of its interval; where too few samples are independent, of their range."""
    low, high = median_interval(samples) or (float(np.min(samples)), float(np.max(samples)))
    return math.log(low), math.log(float(np.median(samples))), math.log(high)


def _judge(
    estimate: float, interval: tuple[float, float], detectable: float, threshold: float
) -> tuple[Verdict, str]:
    """The verdict on a log ratio, and why."""
    low, high = interval
    margin = math.log1p(threshold)
    if -margin < low and high < margin:
        return "same", f"the interval lies within ±{threshold:.1%}"
    if math.isinf(detectable):
        return "undecided", f"too few samples in a round: an interval needs {FEWEST}"
    smallest, size = "the smallest detectable difference", f"{math.expm1(detectable):.1%}"
    if low <= 0 <= high:
        return "undecided", f"the interval contains 1 and reaches beyond ±{threshold:.1%}; {smallest} is {size}"
    if abs(estimate) < detectable:
        return "undecided", f"the interval excludes 1, but the ratio is below {smallest} of {size}"
    if abs(estimate) < margin:
        return "undecided", f"the interval reaches over the threshold of {threshold:.1%}, the ratio does not"
    return ("slower", "the interval lies above 1") if estimate > 0 else ("faster", "the interval lies below 1")


def _judge_one_round(
    estimate: float, interval: tuple[float, float], detectable: float, threshold: float
) -> tuple[Verdict, str]:
    """The verdict where the spread between processes is unknown: large differences only, and never "same"."""
    verdict, why = _judge(estimate, interval, detectable, max(threshold, ONE_ROUND_THRESHOLD))
    if verdict == "same" or abs(estimate) < math.log1p(ONE_ROUND_THRESHOLD):
        verdict, why = "undecided", f"below the {ONE_ROUND_THRESHOLD:.0%} that one process each can show"
    return verdict, f"{why}; one round, so the interval is of the samples within one process each"
