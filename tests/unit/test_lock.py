"""The lock files against the registry: each package has a wheel for aarch64 too, or is built from pure Python."""

from __future__ import annotations

import importlib
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from packaging import tags
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

SOURCES = {"connection-pool", "cppimport", "tensorrt-rtx-cu13"}
"""Packages that have no wheel at all: pack.py builds one here and refuses one that is not pure."""
WITHOUT = set[str]()
"""Packages with wheels for x86_64 and none for aarch64. ncu-report had none until 2026.3."""
INDEX = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple")
PYTHONS = ("3.11", "3.12", "3.13")


@pytest.fixture(scope="module")
def pack() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[2] / "offline"))
        yield importlib.import_module("pack")


@pytest.fixture(scope="module")
def files(pack: Any, repository: Path) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Package → its files in the registry (Simple Repository API, PEP 691)."""
    names = sorted({pin.split("==")[0] for python in PYTHONS for pin in pins_of(pack, repository, python)})
    try:
        with ThreadPoolExecutor(8) as threads:
            return dict(zip(names, threads.map(files_of, names), strict=True))
    except urllib.error.URLError as error:
        if isinstance(error, urllib.error.HTTPError):
            raise
        pytest.skip("no package registry is reached")


def files_of(name: str) -> list[dict[str, Any]]:
    headers = {"Accept": "application/vnd.pypi.simple.v1+json"}
    asked = urllib.request.Request(f"{INDEX.rstrip('/')}/{canonicalize_name(name)}/", headers=headers)
    with urllib.request.urlopen(asked, timeout=120) as answer:
        return list(json.load(answer)["files"])


def pins_of(pack: Any, repository: Path, python: str) -> list[str]:
    locks = [(repository / "requirements" / name).read_text(encoding="utf-8") for name in ("study.txt", "dev.txt")]
    pins = {pin for lock in locks for pin in pack.pinned(lock, python, "aarch64")}
    return sorted(pin for pin in pins if pin.split("==")[0] not in SOURCES | WITHOUT)


def fits(file: Mapping[str, Any], version: str, python: str, wanted: set[tags.Tag]) -> bool:
    """Whether a file is a wheel of a version that a Python on a platform with these tags installs."""
    if not file["filename"].endswith(".whl") or f"-{version}-" not in file["filename"]:
        return False
    _, own, _, its = parse_wheel_filename(file["filename"])
    if own != Version(version) or not its & wanted:
        return False
    return SpecifierSet(file.get("requires-python") or "").contains(f"{python}.0")


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
def test_every_locked_package_has_a_wheel_for_aarch64(
    repository: Path, pack: Any, files: Mapping[str, Sequence[Mapping[str, Any]]], python: str
) -> None:
    newest = int(pack.GLIBC["aarch64"].partition(".")[2])
    platforms = [*(f"manylinux_2_{minor}_aarch64" for minor in range(17, newest + 1)), "manylinux2014_aarch64"]
    numbers = [int(part) for part in python.split(".")]
    wanted = {*tags.cpython_tags(numbers, platforms=platforms)}
    wanted |= {*tags.compatible_tags(numbers, f"cp{python.replace('.', '')}", platforms)}
    pure = {tag for tag in wanted if tag.platform == "any"}
    pins = dict(pin.split("==") for pin in pins_of(pack, repository, python))

    def with_wheel(wanted: set[tags.Tag]) -> set[str]:
        return {
            name for name, version in pins.items() if any(fits(file, version, python, wanted) for file in files[name])
        }

    assert set(pins) - with_wheel(wanted) == set()
    assert len(pins) > 100 and len(with_wheel(wanted) - with_wheel(pure)) > 30
