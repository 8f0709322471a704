"""`inferprof verify`: what works on the machine in hand, row by row, and what to do about the rest."""

from __future__ import annotations

from inferprof.verify.running import Asked, exit_code, verify
from inferprof.verify.table import drawn, render

__all__ = ["Asked", "drawn", "exit_code", "render", "verify"]
