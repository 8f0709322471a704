"""Made-up documents of cases under load. No number in them was measured."""

from __future__ import annotations

import json
from typing import Any

from inferprof import documents

CURVE = {"1": [3e6], "2": [4e6], "4": [6e6], "8": [10e6]}


def load(**more: Any) -> dict[str, Any]:
    content = {
        "rate": 400.0,
        "share": 0.5,
        "requests": 4000,
        "seconds": 10.0,
        "latency": {
            "mean": {"value_ns": 12e6, "low_ns": 11e6, "high_ns": 13e6},
            "p99": {"value_ns": 60e6, "low_ns": 50e6, "high_ns": 70e6},
        },
        "queue_ns": 5e6,
        "service_ns": 7e6,
        "utilization": 0.75,
        "batches": {"2": 1000, "4": 500},
        "lag_ns": 1e5,
        "drift": 1.05,
        "energy": {"j_per_inference": 0.3, "mean_w": 120.0},
        "predicted": {"latency": {"mean": 11.5e6, "p99": 58e6}, "utilization": 0.74, "mean_batch": 2.6},
        "offline": {"latency": {"mean": 9e6, "p99": 40e6}, "utilization": 0.6, "mean_batch": 2.6},
        "seen": {"latency": {"mean": 11.9e6, "p99": 59e6}, "utilization": 0.75, "mean_batch": 2.6},
        "gaps": {
            "mean": {"arrivals": 0.1e6, "service": 0.3e6, "client": 0.0, "order": 0.1e6},
            "p99": {"arrivals": -3e6, "service": 4e6, "client": 0.0, "order": 1e6},
        },
        "correlation": 0.4,
        "independent": 120.0,
        "advised_delay_ns": 2e6,
        "advised_ns": 30e6,
    }
    return content | more


def content_of(name: str, case: str, machine: str, loads: Any = None, **more: Any) -> dict[str, Any]:
    """What a policy came to, as JSON; `case` as in a path."""
    names = dict(zip(("model", "precision", "backend", "variant", "shape"), case.split("/"), strict=True))
    batch = int(names["shape"].removeprefix("b"))
    policy = {"name": name, "policy": "dynamic", "max_batch": batch, "max_delay_ms": 50, "slo_ms": 60}
    content = {"schema": 1, "case": names, "machine": machine, "policy": policy, "curve": CURVE}
    return content | {"capacity": 800.0, "loads": [load()] if loads is None else loads} | more


def document_of(name: str, case: str) -> documents.Serving:
    """The same as it is read."""
    document: documents.Serving = documents.decode(json.dumps(content_of(name, case, "m")).encode(), "serving")
    return document
