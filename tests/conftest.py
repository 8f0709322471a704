"""Fixtures of all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


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
