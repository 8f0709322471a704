"""The lock files against the registry: each package has a wheel for aarch64 too, or is built from pure Python."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

SOURCES = {"connection-pool", "cppimport", "tensorrt-rtx-cu13"}
"""Packages that have no wheel at all: pack.py builds one here and refuses one that is not pure."""
WITHOUT = set[str]()
"""Packages with wheels for x86_64 and none for aarch64. ncu-report had none until 2026.3."""


@pytest.mark.slow
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_every_locked_package_has_a_wheel_for_aarch64(repository: Path, tmp_path: Path, python: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(repository / "offline"))
        pack = importlib.import_module("pack")
    locks = [(repository / "requirements" / name).read_text(encoding="utf-8") for name in ("study.txt", "dev.txt")]
    pins = {pin for lock in locks for pin in pack.pinned(lock, python, "aarch64")}
    wheels = sorted(pin for pin in pins if pin.split("==")[0] not in SOURCES | WITHOUT)
    (tmp_path / "pins.txt").write_text("\n".join(wheels))
    options = [*pack.platform_options(python, pack.GLIBC["aarch64"], "aarch64"), "--only-binary=:all:", "--no-deps"]
    # pip would hold Requires-Python against the Python that it runs in: it is looked at below.
    options += ["--quiet", "--dry-run", "--ignore-installed", "--ignore-requires-python"]
    out = ["--target", str(tmp_path / "none"), "--report", str(tmp_path / "report.json")]
    asked = [*options, *out, "--requirement", str(tmp_path / "pins.txt")]
    done = subprocess.run([sys.executable, "-m", "pip", "install", *asked], capture_output=True, text=True)
    if "Failed to establish a new connection" in done.stderr:
        pytest.skip("no package registry is reached")
    assert done.returncode == 0, done.stderr
    packages = json.loads((tmp_path / "report.json").read_text())["install"]
    needs = {item["metadata"]["name"]: item["metadata"].get("requires_python", "") for item in packages}
    assert [name for name, need in needs.items() if not SpecifierSet(need).contains(f"{python}.0")] == []
    urls = [item["download_info"]["url"].rpartition("/")[2] for item in packages]
    assert len(urls) == len(wheels) > 100
    assert not [url for url in urls if not url.endswith(("aarch64.whl", "any.whl"))]
    assert len([url for url in urls if url.endswith("aarch64.whl")]) > 30
