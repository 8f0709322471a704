"""`inferprof verify`: what works on the machine in hand, row by row, and what to do about the rest."""

from __future__ import annotations

from inferprof.verify.rows import ROWS
from inferprof.verify.running import Asked, chosen, verify
from inferprof.verify.table import render, rich_table

__all__ = ["ROWS", "Asked", "chosen", "render", "rich_table", "verify"]
