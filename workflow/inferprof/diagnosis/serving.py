"""A case under load: is the batch delay right, is the cap on the batch too low, can it carry the rate?

What a policy costs is the latency of requests, which is no part of an inference: the findings have no share of the
case's time, and the bounds of their gain are among their numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from inferprof.case import Shape
from inferprof.diagnosis.times import percent
from inferprof.documents import Serving
from inferprof.documents.serving import Load, ServingPolicy
from inferprof.findings import Change, Clear, Finding, Frames, NotAssessed, Threshold
from inferprof.plugins import check
from inferprof.tables.limits.saturation import rest_of
from inferprof.tables.records import rows_of
from inferprof.units import NS_PER_MS

BATCH_DELAY: Final = Threshold(
    "batch_delay",
    0.15,
    "of the latency percentile",
    "ours: beyond the 10 % that a prediction of a percentile is worth",
)
BATCH_CAP: Final = Threshold("batch_cap", 0.1, "more requests/s", "ours: what a larger batch is worth its memory")
SOURCE: Final = "serving"
Pair = tuple[ServingPolicy, Serving]


def _served(frames: Frames) -> list[Pair]:
    """Policies and what they came to; none that failed."""
    return [(document.policy, document) for document in frames.documents.serving if document.policy]


def _finding(subject: str, reason: str, evidence: dict[str, float], advice: str) -> Finding:
    change = Change("caller")
    return Finding(subject, "capacity", None, reason, evidence, SOURCE, None, advice, "medium", change=change)


# --- the delay -------------------------------------------------------------------------------------------------


@check("batch_delay", "The batch delay is too long or too short", "host", ("record", "load"))
def _delay(frames: Frames) -> list[Finding] | Clear:
    """Another delay would have a percentile lower by BATCH_DELAY at a rate that was measured, by theory.

    Gain of that percentile: at most what was measured less what is predicted of the better delay; at least the lower
    end of the measurement's interval less 1.1 times the prediction, or nothing.
    """
    batching = [pair for pair in _served(frames) if pair[0].max_batch > 1]
    if not batching:
        raise NotAssessed("a policy that forms batches, under load: `serving:` in the config")
    usable = sum(len(_delay_gains(*pair)) for pair in batching)
    if not usable:
        raise NotAssessed("a run at a rate of Poisson arrivals that was not refused")
    findings = [finding for pair in batching for finding in _delays(frames, *pair)]
    return findings or Clear(f"by theory no other delay is much better; measured rates: {usable}")


def _delays(frames: Frames, policy: ServingPolicy, document: Serving) -> Iterator[Finding]:
    """The rate of a policy at which another delay gains the most."""
    rows = [row for row in _delay_gains(policy, document) if row[2] >= frames.limit(BATCH_DELAY) * row[1]]
    if not rows:
        return
    load, value, high, low = max(rows, key=lambda row: row[2] / row[1])
    better = (load.advised_delay_ns or 0.0) / NS_PER_MS
    name = f"p{policy.percentile:g}"
    which = "long" if policy.max_delay_ms > better else "short"
    better_ms = f"{(load.advised_ns or 0.0) / NS_PER_MS:.3g} ms is predicted with {better:.3g} ms"
    reason = (
        f"a delay of {policy.max_delay_ms:g} ms is too {which} at {load.rate:.4g} requests/s: {name} is "
        f"{value / NS_PER_MS:.3g} ms, and {better_ms}"
    )
    evidence = {"rate": load.rate, "delay_ms": policy.max_delay_ms, "advised_delay_ms": better, "value_ns": value}
    evidence |= {"gain_low_ns": low, "gain_high_ns": high}
    takes = f"That takes {low / NS_PER_MS:.3g} to {high / NS_PER_MS:.3g} ms from {name}"
    yield _finding(policy.name, f"{reason}.", evidence, f"Set `max_delay_ms: {better:.3g}`. {takes}.")


def _delay_gains(policy: ServingPolicy, document: Serving) -> list[tuple[Load, float, float, float]]:
    """`_delay_gain` of the loads that have one."""
    return [gain for load in document.loads if (gain := _delay_gain(policy, load))]


def _delay_gain(policy: ServingPolicy, load: Load) -> tuple[Load, float, float, float] | None:
    """The load, its percentile, and bounds of what the advised delay takes from that: at most, at least."""
    measured = load.latency.get(f"p{policy.percentile:g}")
    if load.advised_ns is None or measured is None or load.refused:
        return None
    if math.isclose((load.advised_delay_ns or 0.0) / NS_PER_MS, policy.max_delay_ms, rel_tol=0.05, abs_tol=0.01):
        return load, measured.value_ns, 0.0, 0.0  # it is set: what differs from its prediction is no delay
    low = (measured.low_ns or 0.0) - 1.1 * load.advised_ns
    return load, measured.value_ns, max(0.0, measured.value_ns - load.advised_ns), max(0.0, low)


# --- the cap ---------------------------------------------------------------------------------------------------


@check("batch_cap", "The cap on the batch is below saturation", "host", ("record", "load"), scope="model")
def _cap(frames: Frames) -> list[Finding] | Clear:
    """A larger measured batch carries BATCH_CAP more requests per second than the policy's largest, by end_to_end of
    the bare runs. Gain of the capacity: from nothing to that."""
    policies = [policy for policy, _ in _served(frames) if not policy.generates]
    if not policies:
        raise NotAssessed("a policy that forms batches of single inferences, under load: `serving:` in the config")
    batch, rest = Shape.parse(frames.case.shape).batch, rest_of(frames.case.shape)
    rates = {
        row["batch"]: row["batch"] / row["end_to_end_ms"] * 1e3
        for row in rows_of(frames.peers)
        if rest_of(row["shape"]) == rest
        and all(row[key] == getattr(frames.case, key) for key in ("precision", "backend", "variant"))
        and not math.isnan(row["end_to_end_ms"])
    }
    larger = {size: rate for size, rate in rates.items() if size > batch}
    if batch not in rates or not larger:
        raise NotAssessed("bare runs of the case and of a larger batch: `shapes:` in the config")
    best = max(larger, key=lambda size: larger[size])
    more = larger[best] / rates[batch] - 1
    said = f"batches of {batch} carry {rates[batch]:.4g} requests/s, of {best} {larger[best]:.4g}"
    evidence = {"capacity": rates[batch], "larger_batch": float(best), "larger_capacity": larger[best]}
    if more < frames.limit(BATCH_CAP):
        return Clear(said, evidence)
    evidence |= {"gain_low_per_s": 0.0, "gain_high_per_s": larger[best] - rates[batch]}
    advice = f"Set `max_batch: {best}`: up to {percent(more)} more, at rates that fill it"
    return [_finding(policy.name, f"{said}.", evidence, f"{advice}.") for policy in policies]


# --- the rate --------------------------------------------------------------------------------------------------


@check("serving_rate", "A rate is beyond what the case carries", "host", ("record", "load"))
def _rate(frames: Frames) -> list[Finding] | Clear:
    """A rate that was asked for is beyond what full batches carry, or nobody keeps up with it; or no rate meets the
    objective. What it costs has no bound: the queue grows as long as the load lasts."""
    pairs = _served(frames)
    findings = [finding for pair in pairs for finding in _rates(*pair)]
    highest = {document.highest.rate for _, document in pairs if document.highest and document.highest.rate}
    met = f"; {max(highest):.4g} requests/s meet the objective" if highest else ""
    carried = sum(load.refused is None for _, document in pairs for load in document.loads)
    if not findings and not carried and not highest:
        raise NotAssessed("a run at a rate that was not refused")
    return findings or Clear(f"rates that were asked for and carried: {carried}{met}")


def _rates(policy: ServingPolicy, document: Serving) -> Iterator[Finding]:
    capacity = document.capacity or 0.0
    beyond = [load for load in document.loads if load.refused and load.utilization is None]
    beyond += [load for load in document.loads if "keep up" in (load.refused or "")]
    for load in beyond:
        reason = f"{load.rate:.4g} requests/s: {load.refused}"
        evidence = {"rate": load.rate, "capacity": capacity, "excess_per_s": max(0.0, load.rate - capacity)}
        advice = "Ask for less, or carry more: a larger batch, a faster format or runtime, another server"
        yield _finding(policy.name, f"{reason}.", evidence, f"{advice}.")
    if document.highest and document.highest.none_meets:
        reason = f"{document.highest.not_measured}"
        evidence = {"slo_ms": policy.slo_ms, "capacity": capacity}
        advice = (
            "Shorten the delay, or take a faster case: the service of one request may be longer than the objective"
        )
        yield _finding(policy.name, f"{reason}.", evidence, f"{advice}.")
