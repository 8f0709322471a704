"""A case under load in a few lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from inferprof.case import Case


def render(result: Mapping[str, Any]) -> str:
    """A line for each rate, and the highest one; why it failed, if so."""
    if result["status"] == "failed":
        return f"failed: {result['reason']}"
    return "\n".join(_lines(result))


def _lines(result: Mapping[str, Any]) -> Iterator[str]:
    asked = result["policy"]
    percent = f"p{asked.get('percentile', 99):g}"
    yield f"{Case(**result['case'])} {asked['name']}: full batches carry {result['capacity']:.4g} requests/s"
    for load in result["loads"]:
        yield f"  {load['rate']:.4g}/s: {_load(load, percent)}"
    if highest := result.get("highest"):
        yield f"  {percent} ≤ {asked['slo_ms']:g} ms: {_highest(highest)}"


def _load(load: Mapping[str, Any], percent: str) -> str:
    if "latency" not in load:
        return str(load["refused"])
    pairs = []
    for name in ("mean", percent):
        if name in load["latency"]:
            predicted = load.get("predicted", {}).get("latency", {}).get(name)
            foreseen = f" (predicted {predicted / 1e6:.4g})" if predicted else ""
            pairs.append(f"{name} {load['latency'][name]['value_ns'] / 1e6:.4g} ms{foreseen}")
    return ", ".join(pairs) + (f"; {load['refused']}" if load.get("refused") else "")


def _highest(highest: Mapping[str, Any]) -> str:
    if reason := highest.get("not_measured"):
        return str(reason)
    predicted = f", predicted {highest['predicted']:.4g}" if highest.get("predicted") else ""
    return f"up to {highest['rate']:.4g}/s, not {highest['fails'] or float('nan'):.4g}{predicted}"
