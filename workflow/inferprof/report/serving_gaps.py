"""What lies between predicted and measured latency under load, and what of it is whose doing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from inferprof.documents.serving import Gap, Load, Quantile
from inferprof.report import under_load
from inferprof.report.common import NOT_RECORDED, in_ms, optional
from inferprof.report.model import Cell, Column, Table, Text, words
from inferprof.report.numbers import three_digits
from inferprof.report.under_load import FEW, Served

GOALS: Final = {"mean": 0.05}
PERCENTILE_GOAL: Final = 0.10
"""Of the measured value: how near a prediction is meant to be, a mean and a percentile."""
SMALL: Final = 0.02
"""Of the measured value: a part of the difference that is not worth a reason."""
REASONS: Final = {
    "arrivals": "this schedule, not a load without end",
    "service": "services under load",
    "client": "batches started late",
    "order": "slow services in a row",
}
GAPS: Final = (
    *under_load.HEAD,
    Column("rate_per_s", "rate/s", "number"),
    Column("figure", "of"),
    Column("measured_ms", "measured", "number"),
    Column("offline_ms", "offline", "number"),
    Column("predicted_ms", "pred.", "number"),
    Column("low_ms", "from", "number"),
    Column("high_ms", "to", "number"),
    Column("seen_ms", "seen", "number"),
    Column("within", "within"),
    Column("arrivals_percent", "arrivals %", "number", hidden=True),
    Column("service_percent", "services %", "number", hidden=True),
    Column("client_percent", "client %", "number", hidden=True),
    Column("order_percent", "order %", "number", hidden=True),
    Column("late_ms", "mean late start ms", "number", hidden=True),
    Column("correlation", "lag-1 autocorrelation", "number", hidden=True),
    Column("independent", "independent batches", "number", hidden=True),
    Column("reason", "what differs most"),
)
NOTE: Final = (
    "ms. Offline: predicted by the curve of batches that follow each other. Pred.: by service times in a rehearsal "
    "of the rate; from, to: of simulated runs of the same length. Seen: by the service times of the run itself. "
    "Within: yes (5 % of a mean, 10 % of a percentile), else interval, else no. What differs most: as a share of the "
    "measured value; + where that is longer."
)


def table(pairs: Iterable[tuple[Served, Load]]) -> Iterator[Table]:
    """The table of gaps; none where no load has any."""
    rows = tuple(row for served, load in pairs for row in _rows(served, load))
    if rows:
        yield Table("serving_gaps", "Why predicted and measured differ", GAPS, rows, NOTE, groups=4)


def summary(pairs: Iterable[tuple[Served, Load]]) -> Iterator[Text]:
    """How many predictions were near enough, how many within their interval, and what the rest owe to what."""
    judged = [
        (within(name, load), load.gaps[name].largest)
        for served, load in pairs
        for name in figures(served, load)
        if load.predicted
    ]
    if not judged:
        return
    near, inside = (sum(verdict == each for verdict, _ in judged) for each in ("goal", "interval"))
    missed = [largest for verdict, largest in judged if verdict == "no"]
    why = ", ".join(f"{REASONS[name]} {missed.count(name)}" for name in REASONS if name in missed)
    rest = f"; beyond both {len(missed)} ({why})" if missed else ""
    yield Text(
        f"Of {len(judged)} predictions {near} are within 5 % (means) and 10 % (percentiles), {inside} more within "
        f"their interval{rest}.",
        "item",
    )


def figures(served: Served, load: Load) -> list[str]:
    """The mean and the percentile of the objective, where they have a gap."""
    return [name for name in ("mean", f"p{served[1].percentile:g}") if name in load.gaps and name in load.latency]


def within(name: str, load: Load) -> str:
    """`goal`, `interval` or `no`."""
    assert load.predicted
    measured, foreseen = load.latency[name].value_ns, load.predicted.latency[name]
    if abs(foreseen / measured - 1) <= GOALS.get(name, PERCENTILE_GOAL):
        return "goal"
    low, high = load.predicted.intervals.get(name, (foreseen, foreseen))
    return "interval" if low <= measured <= high else "no"


def _rows(served: Served, load: Load) -> Iterator[tuple[Cell, ...]]:
    for name in figures(served, load):
        value, gap, predicted = load.latency[name], load.gaps[name], load.predicted
        low, high = predicted.intervals.get(name, (None, None)) if predicted else (None, None)
        none = under_load.NO_PREDICTION
        yield (
            *under_load.head(served),
            under_load.rate(load),
            words(name),
            under_load.value(value, FEW),
            in_ms(load.offline.latency.get(name) if load.offline else None, none),
            in_ms(predicted.latency.get(name) if predicted else None, none),
            in_ms(low, none),
            in_ms(high, none),
            in_ms(load.seen.latency.get(name) if load.seen else None, NOT_RECORDED),
            _verdict(name, load),
            *(_share(part, value, none) for part in (gap.arrivals, gap.service, gap.client, gap.order)),
            in_ms(load.late_ns, NOT_RECORDED),
            optional(load.correlation, three_digits, FEW),
            optional(load.independent, three_digits, FEW),
            words(reason(gap, value, load)),
        )


def _verdict(name: str, load: Load) -> Cell:
    if not load.predicted:
        return words("")
    verdict = within(name, load)
    return words({"goal": "yes"}.get(verdict, verdict), "warn" if verdict == "no" else None)


def _share(part: float | None, value: Quantile, reason_: str) -> Cell:
    return optional(None if part is None else 100 * part / value.value_ns, under_load.signed, reason_)


def reason(gap: Gap, value: Quantile, load: Load) -> str:
    """The largest part of a gap: `services under load +12 %`; empty where it is small."""
    share = (getattr(gap, gap.largest) or 0.0) / value.value_ns
    if abs(share) < SMALL:
        return ""
    hangs = f" (lag-1 {load.correlation:.2f})" if gap.largest == "order" and load.correlation is not None else ""
    return f"{REASONS[gap.largest]} {under_load.signed(100 * share)} %{hangs}"
