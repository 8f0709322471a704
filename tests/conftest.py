"""Fixtures of all tests, and the skips that are allowed: those of skips.yaml, each with its reason."""

from __future__ import annotations

import fnmatch
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

import hypothesis
import pytest
import yaml

# A machine with neighbours stalls for longer than the 200 ms that an example may take by default.
hypothesis.settings.register_profile("shared machine", deadline=None)
hypothesis.settings.load_profile("shared machine")

REPOSITORY = Path(__file__).resolve().parents[1]
SKIPS = yaml.safe_load((REPOSITORY / "tests/skips.yaml").read_text(encoding="utf-8"))

AnyReport = TypeVar("AnyReport", pytest.TestReport, pytest.CollectReport)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that makes today's reports the golden ones."""
    parser.addoption("--rewrite-goldens", action="store_true", help="write tests/data/golden/ anew")


def allowed(test: str, reason: str) -> bool:
    """Whether skips.yaml lists that a test, or all tests of a module, are skipped for a reason."""
    name = test.partition("[")[0]
    listed = (skip["tests"] for skip in SKIPS if fnmatch.fnmatch(reason, f"*{skip['reason']}*"))
    return any(fnmatch.fnmatch(name, pattern) for patterns in listed for pattern in patterns)


def judged(report: AnyReport) -> AnyReport:
    """A report of a skip that nobody listed becomes that of a failure."""
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not allowed(report.nodeid, reason):
            report.outcome = "failed"
            report.longrepr = f"{report.nodeid} is skipped, which tests/skips.yaml does not list: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that is skipped."""
    return judged((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that is skipped."""
    return judged((yield))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout that is tested."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared() -> Path:
    """Other people's tool outputs and models, which lie beside the checkout and are never copied into it."""
    folder = REPOSITORY.parent / "shared"
    if not folder.is_dir():
        pytest.skip("no ../shared beside the checkout")
    return folder
