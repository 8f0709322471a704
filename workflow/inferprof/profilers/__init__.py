"""The profilers: one module per tool, from its command line to its rows of the tidy table."""

from __future__ import annotations

from inferprof.profilers.capturing import aimed, capture, capture_or_reason

__all__ = ["aimed", "capture", "capture_or_reason"]
