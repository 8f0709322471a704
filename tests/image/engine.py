"""Builds and runs images with no daemon, in a folder of its own: buildah builds, podman and runc run. As root."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SUITE, DEBIANS_PYTHON, NVIDIAS_PYTHON = "bookworm", "3.11", "3.12"
"""Debian 12 and its Python: the stand-in's where this machine has no Python of NVIDIA's version to copy."""
DEBIAN = "python3,python3-pip,python3-venv,ca-certificates,git,make"
PIP = "/etc/xdg/pip"
"""Where pip looks for the machine's settings; mounted while the image is built, and empty in it."""
LIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096")
"""podman's own are above what a root without CAP_SYS_RESOURCE may set."""


@dataclass
class Engine:
    """Images, containers and what the steps took, below `folder`."""

    folder: Path
    steps: list[str] = field(default_factory=list)

    def build(self, tag: str, context: Path, *options: str) -> subprocess.CompletedProcess[str]:
        """`buildah bud` of a folder with a Dockerfile or Containerfile; its output, also where it fails."""
        words = ["buildah", *self._storage, "bud", "--isolation=chroot", "--pull=never", "--layers", *options]
        return _run([*words, f"--tag={tag}", str(context)])

    def inspect(self, image: str) -> dict[str, Any]:
        """What podman knows of an image: Config, Size, RootFS, History, Digest, …"""
        done = _run(["podman", *self._storage, "image", "inspect", image], check=True)
        facts: dict[str, Any] = json.loads(done.stdout)[0]
        return facts

    def layers(self, image: str) -> list[tuple[int, str]]:
        """Bytes of each layer and what made it, the newest first."""
        shown = ["podman", *self._storage, "history", "--format=json", image]
        return [(layer["size"], layer["CreatedBy"]) for layer in json.loads(_run(shown, check=True).stdout)]

    def command(self, options: Sequence[str], image: str, words: Sequence[str]) -> list[str]:
        """`podman run` without network."""
        run = [
            "podman",
            *self._storage,
            "--cgroup-manager=cgroupfs",
            "--runtime=runc",
            "run",
            "--rm",
            "--network=none",
        ]
        return [*run, *LIMITS, *options, image, *words]

    def run(self, options: Sequence[str], image: str, *words: str) -> subprocess.CompletedProcess[str]:
        """A container's output and exit code."""
        return _run(self.command(options, image, words))

    def signal(self, container: str, name: str) -> None:
        """Send a signal to process 1 of a container."""
        _run(
            ["podman", *self._storage, "--cgroup-manager=cgroupfs", "kill", f"--signal={name}", container], check=True
        )

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Keep how long something took."""
        began = time.monotonic()
        yield
        self.steps.append(f"{time.monotonic() - began:6.0f} s  {title}")

    def note(self, text: str) -> None:
        """Keep a line beside those of the steps."""
        self.steps.append(f"{'':8}  {text}")

    def remove(self) -> None:
        """Remove all images and what lies around them; the root of the stand-in stays for the next time."""
        _run(["podman", *self._storage, "rmi", "--all", "--force"])
        _run(["buildah", *self._storage, "rmi", "--all", "--force"])
        for name in ("storage", "running", "base", "wheels", "pip"):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    @property
    def _storage(self) -> list[str]:
        return [f"--root={self.folder / 'storage'}", f"--runroot={self.folder / 'running'}"]


def _run(command: Sequence[str], check: bool = False) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if check and done.returncode:
        raise RuntimeError(f"{shlex.join(command)} exited with {done.returncode}:\n{done.stdout[-2000:]}")
    return done


def stand_in(engine: Engine, tag: str, torch: str, interpreter: str) -> str:
    """The base image under the name that the Dockerfile wants: Debian's packages, then those of constraint.txt.

    Returns the version of its Python.
    """
    context, wheels = engine.folder / "base", engine.folder / "wheels"
    context.mkdir(parents=True, exist_ok=True)
    prefix = _prefix(interpreter)
    version = NVIDIAS_PYTHON if prefix else DEBIANS_PYTHON
    with engine.step("stand-in: debootstrap, or its archive of the last time"):
        _root(engine.folder, prefix, context / "root.tar")
    for name in ("Containerfile", "constraint.txt", "nvidia_entrypoint.sh"):
        shutil.copy(HERE / name, context)
    with engine.step(f"stand-in: download its wheels for Python {version}"):
        target = [f"--python-version={version}", "--only-binary=:all:", f"--constraint={context / 'constraint.txt'}"]
        wanted = ["numpy", "scipy", "onnx", "nvidia-modelopt", "packaging", "setuptools", "wheel", "pip"]
        words = [*target, f"--dest={wheels}", *shlex.split(torch), *wanted]
        _run([sys.executable, "-m", "pip", "download", "--quiet", *words], check=True)
    with engine.step("stand-in: build"):
        done = engine.build(tag, context, f"--volume={wheels}:/wheels:ro")
    if done.returncode:
        raise RuntimeError(f"the stand-in was not built:\n{done.stdout[-2000:]}")
    return version


def _prefix(interpreter: str) -> Path | None:
    """Where a Python of NVIDIA's version lies as a whole; None where there is none, or it is the system's."""
    if shutil.which(interpreter) is None:
        return None
    shown = (
        f"import sys; print(sys.base_prefix, sys.version_info[:2] == {tuple(map(int, NVIDIAS_PYTHON.split('.')))})"
    )
    prefix, _, fits = _run([interpreter, "-c", shown]).stdout.strip().rpartition(" ")
    return Path(prefix) if fits == "True" and prefix != "/usr" else None


def _root(folder: Path, prefix: Path | None, archive: Path) -> None:
    """The archive of a minimal Debian, with the Python at `prefix` in its /usr/local."""
    kept = folder / f"root-{SUITE}{'-' + NVIDIAS_PYTHON if prefix else ''}.tar"
    if not kept.exists():
        root = folder / "root"
        shutil.rmtree(root, ignore_errors=True)
        _run(["debootstrap", "--variant=minbase", f"--include={DEBIAN}", SUITE, str(root)], check=True)
        if prefix:
            _copy_python(prefix, root / "usr/local")
        # Without what tells of the machine that made it.
        for path in (*root.glob("var/cache/apt/archives/*.deb"), root / "etc/hostname", root / "etc/resolv.conf"):
            path.unlink(missing_ok=True)
        (root / PIP.lstrip("/")).mkdir(parents=True, exist_ok=True)
        _run(["tar", "-C", str(root), "--one-file-system", "-cf", f"{kept}.part", "."], check=True)
        Path(f"{kept}.part").rename(kept)
        shutil.rmtree(root)
    archive.unlink(missing_ok=True)
    archive.hardlink_to(kept)


def _copy_python(prefix: Path, target: Path) -> None:
    """An interpreter and its library, without what was installed in it, its tests and its static library."""
    name = f"python{NVIDIAS_PYTHON}"
    left = shutil.ignore_patterns("site-packages", "test", "idlelib", "tkinter", "__pycache__", "config-*")
    shutil.copytree(prefix / "lib" / name, target / "lib" / name, ignore=left, dirs_exist_ok=True)
    (target / "lib" / name / "site-packages").mkdir()
    for library in prefix.glob("lib/libpython*.so*"):
        shutil.copy2(library, target / "lib", follow_symlinks=False)
    shutil.copy2(prefix / "bin" / name, target / "bin")
    for link in ("python", "python3"):
        (target / "bin" / link).symlink_to(name)


def pip_settings(folder: Path) -> str:
    """The option of a build by which pip reaches the registry as on this machine, without leaving a trace of it."""
    listed = _run([sys.executable, "-m", "pip", "config", "list"], check=True).stdout
    settings: dict[str, str] = {}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        settings[key.rpartition(".")[2]] = value.strip("'\"")
    folder.mkdir(parents=True, exist_ok=True)
    kept: dict[str, str] = {
        key: settings[key] for key in ("index-url", "trusted-host", "proxy", "timeout") if key in settings
    }
    if "cert" in settings:
        shutil.copy(settings["cert"], folder / "certificates.pem")
        kept["cert"] = f"{PIP}/certificates.pem"
    (folder / "pip.conf").write_text("[global]\n" + "".join(f"{key} = {value}\n" for key, value in kept.items()))
    return f"--volume={folder}:{PIP}:ro"
