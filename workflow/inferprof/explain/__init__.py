"""Any capture, one command, an answer: foreign files become cases that take the way of a study's."""

from __future__ import annotations

from inferprof.explain.verb import explain, one

__all__ = ["explain", "one"]
