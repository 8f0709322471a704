"""The stand-in, the image on top of it and the study in it, each made once; at the end what the steps took."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.image.engine import Engine, pip_settings, stand_in

from inferprof.units import MIB

IMAGE = "inferprof:latest"
USER = 1234
VERSION, REVISION = "0.1.0", "c0ffee" * 6 + "c0de"
TOOLS = ("buildah", "podman", "runc", "catatonit", "debootstrap")


@pytest.fixture(scope="session")
def engine(repository: Path) -> Iterator[Engine]:
    """An engine whose storage is removed when the tests are done."""
    if os.geteuid() or (lacking := [tool for tool in TOOLS if shutil.which(tool) is None]):
        pytest.exit("as root on Debian, with " + ", ".join(lacking if not os.geteuid() else TOOLS), returncode=2)
    engine = Engine(repository / "build/test-image")
    engine.remove()
    yield engine
    engine.remove()
    (engine.folder / "steps.txt").write_text("\n".join(engine.steps) + "\n")


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The steps with their seconds and sizes."""
    steps = terminalreporter.config.rootpath / "build/test-image/steps.txt"
    if steps.exists():
        terminalreporter.write_sep("-", "steps, on a stand-in for NVIDIA's image")
        terminalreporter.write_line(steps.read_text())


@pytest.fixture(scope="session")
def base(engine: Engine, repository: Path) -> str:
    """The stand-in under the name that the Dockerfile asks for."""
    tag = re.search(r"^ARG NGC_TAG=(\S+)$", (repository / "Dockerfile").read_text(), re.MULTILINE)
    assert tag is not None
    name = f"nvcr.io/nvidia/pytorch:{tag[1]}"
    interpreter = os.environ.get("STAND_IN_PYTHON", "python3.12")
    version = stand_in(engine, name, os.environ.get("TORCH", "torch==2.13.0"), interpreter)
    engine.note(f"stand-in with Python {version}: {engine.inspect(name)['Size'] / MIB:.0f} MiB")
    return name


@pytest.fixture(scope="session")
def image(engine: Engine, base: str, clone: Path) -> str:
    """The image, by the Dockerfile as it is."""
    arguments = [f"--build-arg=VERSION={VERSION}", f"--build-arg=REVISION={REVISION}"]
    with engine.step("image: buildah bud"):
        done = engine.build(IMAGE, clone, pip_settings(engine.folder / "pip"), *arguments)
    assert done.returncode == 0, done.stdout[-4000:]
    (engine.folder / "build.log").write_text(done.stdout)
    for size, made_by in engine.layers(IMAGE):
        if size > MIB:
            engine.note(f"{size / MIB:6.0f} MiB  {made_by[:90]}")
    return IMAGE


def cloned(repository: Path, folder: Path) -> Path:
    """A fresh clone that belongs to USER."""
    subprocess.run(["git", "clone", "--quiet", str(repository), str(folder)], check=True)
    subprocess.run(["chown", "--recursive", f"{USER}:{USER}", str(folder)], check=True)
    return folder


@pytest.fixture(scope="session")
def clone(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout that is built from, and mounted."""
    return cloned(repository, tmp_path_factory.mktemp("clone") / "inferprof")


@pytest.fixture(scope="session")
def mounts(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The checkout and a volume for caches, read-only root, as a user without an entry in /etc/passwd."""
    cache = tmp_path_factory.mktemp("cache")
    cache.chmod(0o1777)
    clone.parent.chmod(0o755)
    user = ["--init", "--read-only", f"--user={USER}:{USER}"]
    return [*user, f"--volume={clone}:/inferprof", f"--volume={cache}:/cache"]


@pytest.fixture(scope="session")
def studied(engine: Engine, image: str, mounts: list[str], clone: Path) -> Path:
    """The results of the default study, run by the image's own command."""
    with engine.step("default study: checkout mounted, uid 1234, read-only root, no network"):
        done = engine.run(mounts, image)
    (engine.folder / "study.log").write_text(done.stdout)
    assert done.returncode == 0, done.stdout[-4000:]
    shutil.copy(clone / "results/REPORT.txt", engine.folder / "REPORT.txt")
    return clone / "results"
