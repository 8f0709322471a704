"""From which batch on a recommended case saturates the GPU, in one sentence of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferprof.report.evidence import Evidence
from inferprof.tables.limits.saturation import SERIES, rest_of
from inferprof.tables.records import rows_of


def sentence(evidence: Evidence, case: Mapping[str, Any]) -> str:
    """`Throughput is saturated from batch 64 on (device)`; empty where the case has no series of settled batches.

    case: a row of Evidence.measured.
    """
    place = {**case, "rest": rest_of(case["shape"])}
    alike = (row for row in rows_of(evidence.saturation) if all(row[key] == place[key] for key in SERIES))
    series = next(alike, None)
    if series is None:
        return ""
    batch, boundary = series["batch"], series["boundary"]
    if not series["saturated"]:
        return f"Throughput is not saturated at batch {batch}, the largest that is in no doubt ({boundary})"
    smallest = ", the smallest measured," if batch == series["smallest"] else ""
    return f"Throughput is saturated from batch {batch}{smallest} on ({boundary})"
