"""Where throughput saturates over the batch, as several sections say it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from inferprof.report.common import name_of
from inferprof.report.evidence import Evidence
from inferprof.report.numbers import percent, three_digits
from inferprof.tables.limits import saturation
from inferprof.tables.records import rows_of

SHARE: Final = percent(100 * saturation.SHARE)


def sentences(evidence: Evidence, model: str) -> Iterator[str]:
    """Where each backend saturates, by its series with the most items/s; a sentence for each rest of the shape."""
    own = evidence.saturation[evidence.saturation["model"] == model]
    ranked = own.sort_values("peak_items_per_s", ascending=False, kind="stable")
    best = rows_of(ranked.drop_duplicates(["backend", "rest"]))
    for rest in dict.fromkeys(row["rest"] for row in best):
        reached: dict[str, list[str]] = {}
        for row in (series for series in best if series["rest"] == rest):
            reached.setdefault(_reached(row), []).append(f"{name_of(row)} ({rate(row)}/s)")
        points = "; ".join(f"{where}: {', '.join(names)}" for where, names in reached.items())
        yield f"Saturation over the batch{f' at {rest}' if rest else ''} ({SHARE} of the most items/s) {points}."


def _reached(row: Mapping[str, Any]) -> str:
    if not row["saturated"]:
        return f"above b{row['below']}, with none over b{row['batch']} measured"
    return f"at b{row['batch']}{' or less' if row['batch'] == row['smallest'] else ''}"


def rate(row: Mapping[str, Any]) -> str:
    """The most items per second of a series."""
    return three_digits(row["peak_items_per_s"])
