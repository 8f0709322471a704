"""What the links between GPUs were measured to do with messages of a size: links.json, never a datasheet."""

from __future__ import annotations

import numpy as np

from inferprof.documents import Links


def message_ns(links: Links, operation: str, size: float) -> float | None:
    """How long an operation takes with messages of so many bytes, between two measured sizes by their logarithms;
    None where it was not measured, and for sizes beyond those that were."""
    own = (links.operations or {}).get(operation)
    sizes = sorted(map(int, own.by_size)) if own else []
    if not own or not sizes[0] <= size <= sizes[-1]:
        return None
    times = [own.by_size[str(each)].ns for each in sizes]
    return float(np.exp(np.interp(np.log(size), np.log(sizes), np.log(times))))


def best_gb_per_s(links: Links, operation: str) -> float | None:
    """The highest bus bandwidth of an operation at any size; None where it was not measured."""
    own = (links.operations or {}).get(operation)
    return max(message.gb_per_s for message in own.by_size.values()) if own else None
