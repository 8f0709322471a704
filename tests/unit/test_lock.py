"""The lock files against the registry: each package has a wheel for aarch64 too, or is built from pure Python."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = {"connection-pool", "cppimport", "tensorrt-rtx-cu13"}
"""Packages that have no wheel at all: pack.py builds one here and refuses one that is not pure."""
WITHOUT = set[str]()
"""Packages with wheels for x86_64 and none for aarch64. ncu-report had none until 2026.3."""


@pytest.mark.slow
def test_every_locked_package_has_a_wheel_for_aarch64(repository: Path, tmp_path: Path) -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(repository / "offline"))
        pack = importlib.import_module("pack")
    locks = [(repository / "requirements" / name).read_text(encoding="utf-8") for name in ("study.txt", "dev.txt")]
    pins = {pin for lock in locks for pin in pack.pinned(lock, python, "aarch64")}
    wheels = sorted(pin for pin in pins if pin.split("==")[0] not in SOURCES | WITHOUT)
    (tmp_path / "pins.txt").write_text("\n".join(wheels))
    options = [*pack.platform_options(python, pack.GLIBC["aarch64"], "aarch64"), "--only-binary=:all:", "--no-deps"]
    found = ["--target", str(tmp_path / "none"), "--report", str(tmp_path / "report.json")]
    asked = [
        "--quiet",
        "--dry-run",
        "--ignore-installed",
        *options,
        *found,
        "--requirement",
        str(tmp_path / "pins.txt"),
    ]
    done = subprocess.run([sys.executable, "-m", "pip", "install", *asked], capture_output=True, text=True)
    if "Failed to establish a new connection" in done.stderr:
        pytest.skip("no package registry is reached")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    urls = [item["download_info"]["url"].rpartition("/")[2] for item in report["install"]]
    assert len(urls) == len(wheels) > 100
    assert not [url for url in urls if not url.endswith(("aarch64.whl", "any.whl"))]
    assert len([url for url in urls if url.endswith("aarch64.whl")]) > 30
