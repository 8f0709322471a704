"""What the tests of the checks share."""

from __future__ import annotations

from typing import Any

import pytest

from inferprof import registry
from inferprof.diagnosis import run
from inferprof.findings import Answer, Frames


def ask(name: str, frames: Frames) -> Answer:
    """One check's answer about a case."""
    return run.answer(registry.checks()[name], frames)


def approx(value: float, rel: float | None = None, abs: float | None = None) -> Any:
    """pytest.approx where a number is expected, as a type checker sees it."""
    return pytest.approx(value, rel=rel, abs=abs)
