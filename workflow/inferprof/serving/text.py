"""A case under load in a few lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from inferprof.case import Case
from inferprof.documents.serving import ServingPolicy
from inferprof.serving.bench import name_of
from inferprof.serving.search import LATE

TOKENS: Final = {"ttft": "TTFT", "tpot": "TPOT"}


def render(result: Mapping[str, Any]) -> str:
    """A line for each rate, and the highest one; why it failed, if so."""
    if result["status"] == "failed":
        return f"failed: {result['reason']}"
    return "\n".join(_lines(result))


def _lines(result: Mapping[str, Any]) -> Iterator[str]:
    asked = msgspec.convert(result["policy"], ServingPolicy)
    yield f"{Case(**result['case'])} {asked.name}: full batches carry {result['capacity']:.4g} requests/s"
    for load in result["loads"]:
        yield f"  {load['rate']:.4g}/s: {_load(load, name_of(asked.percentile))}"
    if highest := result.get("highest"):
        yield f"  {asked.objective}: {_highest(highest)}"


def _load(load: Mapping[str, Any], percent: str) -> str:
    if "latency" not in load:
        return str(load["refused"])
    parts = []
    tokens, predicted = load.get("tokens") or {}, load.get("predicted", {})
    for what, title in TOKENS.items() if tokens else ():
        parts.append(_pair(f"{title} {percent}", tokens[what].get(percent), predicted.get(what, {}).get(percent)))
    if tokens:
        parts.append(f"{tokens['per_s']:.4g} tokens/s, {100 * tokens['good_share']:.3g} % good")
    for name in () if tokens else ("mean", percent):
        parts.append(_pair(name, load["latency"].get(name), predicted.get("latency", {}).get(name)))
    return ", ".join(filter(None, parts)) + (f"; {load['refused']}" if load.get("refused") else "")


def _pair(name: str, measured: Mapping[str, float] | None, predicted: float | None) -> str:
    if not measured:
        return ""
    foreseen = f" (predicted {predicted / 1e6:.4g})" if predicted else ""
    return f"{name} {measured['value_ns'] / 1e6:.4g} ms{foreseen}"


def _highest(highest: Mapping[str, Any]) -> str:
    if reason := highest.get("not_measured"):
        return str(reason)
    predicted = f", predicted {highest['predicted']:.4g}" if highest.get("predicted") else ""
    late = f"; not to be used: {highest['ended']}" if LATE in highest["ended"] else ""
    return f"up to {highest['rate']:.4g}/s ({highest['low']:.4g} to {highest['high']:.4g}){predicted}{late}"
