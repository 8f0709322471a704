"""The profilers: one module per tool, from its command line to its rows of the tidy table."""

from __future__ import annotations

from inferprof.profilers.capturing import capture, capture_or_reason, read

__all__ = ["capture", "capture_or_reason", "read"]
