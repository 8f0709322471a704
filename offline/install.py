"""Installs inferprof out of parts, without network, beside the torch that is there. Standard library only.

pack.py puts this text and a manifest into install.sh. What the user can mend is one line and exit code 2.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CUDA = re.compile(r"torch|triton|nvidia-|cuda-")
"""Packages that stay as they are where torch asks for them: it is built against them."""
CHUNK = 1 << 20
LAST_LINES = 6
"""Of a command that failed, in one line."""


class Refused(Exception):
    """One line: what is wrong and what to do."""


@dataclass(frozen=True)
class Part:
    """One of the files that make the archive, in their order."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What pack.py knows of the archive."""

    python: str
    glibc: str
    """The oldest that all wheels run on."""
    torch: str
    """`there`, or the requirement that the wheels meet."""
    revision: str
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Manifest:
        """The inverse of dataclasses.asdict."""
        return cls(**{**content, "parts": tuple(Part(**part) for part in content["parts"])})


def main(manifest: Manifest, arguments: Sequence[str]) -> int:
    """Install; `arguments` are the folder of the parts and, if wanted, the folder to make. Returns the exit code."""
    parts = Path(arguments[0])
    folder = Path(*arguments[1:2] or ["inferprof"]).absolute()
    try:
        check_machine(manifest)
        if folder.exists() and any(folder.iterdir()):
            raise Refused(f"{folder} is there already and not empty: name another folder, sh install.sh FOLDER")
        check_parts(manifest, parts)
    except Refused as error:
        sys.stderr.write(f"install.sh: {error}\n")
        return 2
    try:
        install(manifest, parts, folder)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if not isinstance(error, Refused):
            raise
        sys.stderr.write(f"install.sh: {error}; {folder} is removed again\n")
        return 1
    return 0


# --- before anything is written --------------------------------------------------------------------------------


def check_machine(manifest: Manifest) -> None:
    """Whether the wheels run here. The Python has been looked at by install.sh."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        raise Refused(f"the wheels are for Linux on x86_64, and this is {sys.platform} on {os.uname().machine}")
    library = (os.confstr("CS_GNU_LIBC_VERSION") or "no glibc").removeprefix("glibc ")
    if not library[0].isdigit() or numbers(library) < numbers(manifest.glibc):
        raise Refused(f"the wheels need glibc {manifest.glibc} or newer, and this is {library}: use a newer system")
    if manifest.torch == "there" and version("torch") is None:
        raise Refused(
            f"{sys.executable} has no torch to install beside: name the Python that has it, "
            "PYTHON=... sh install.sh, or pack torch too: make offline TORCH=torch==VERSION"
        )


def check_parts(manifest: Manifest, folder: Path) -> None:
    """Name every part that is lost or damaged."""
    lost = [part.name for part in manifest.parts if not (folder / part.name).is_file()]
    if lost:
        raise Refused(f"{', '.join(lost)} of {len(manifest.parts)} parts not found in {folder}: copy again")
    damaged = [part.name for part in manifest.parts if sha256(folder / part.name) != part.sha256]
    if damaged:
        raise Refused(f"{', '.join(damaged)} of {len(manifest.parts)} parts damaged on the way: copy again")


def sha256(path: Path) -> str:
    """Of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def numbers(text: str) -> tuple[int, ...]:
    """`2.28` as what sorts."""
    return tuple(int(number) for number in re.findall(r"\d+", text))


def version(name: str) -> str | None:
    """What is installed of a package in this Python; None where it isn't."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


# --- installing ------------------------------------------------------------------------------------------------


def install(manifest: Manifest, parts: Path, folder: Path) -> None:
    """The project at `folder`, its .venv, and what the machine is in environment.json."""
    say(f"{len(manifest.parts)} parts are whole: inferprof {manifest.revision}")
    unpack([parts / part.name for part in manifest.parts], folder)
    wheels = folder / "wheels"
    beside = manifest.torch == "there"
    python = make_venv(folder / ".venv", beside)
    locked = dict(wheel.name.split("-")[:2] for wheel in wheels.glob("*.whl"))
    kept = kept_packages({canonical(name): version for name, version in locked.items()}, wheels) if beside else {}
    (folder / "constraints.txt").write_text("".join(f"{name}=={there}\n" for name, there in sorted(kept.items())))
    wanted = sorted(wheel for wheel in wheels.glob("*.whl") if canonical(wheel.name.split("-")[0]) not in kept)
    (folder / "wheels.txt").write_text("".join(f"{wheel}\n" for wheel in wanted))
    say(f"installing {len(wanted)} wheels; as they are stay {listed(kept) or 'none'}")
    pip: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    run([*pip, "--constraint", folder / "constraints.txt", "--requirement", folder / "wheels.txt"])
    run([*pip, "--no-build-isolation", "--editable", folder])
    check_torch(python, version("torch") if beside else None)
    try:
        run([python, "-m", "pip", "check"])
    except Refused as error:
        # The machine may bring some of its own, and the lock leaves out on purpose what no study needs.
        say(f"pip check: {error}")
    shutil.rmtree(wheels)
    (folder / "wheels.txt").unlink()
    # make leaves an environment alone that is newer than the lock files.
    (folder / ".venv/.installed").touch()
    probe(folder)


def unpack(parts: Sequence[Path], folder: Path) -> None:
    """Extract the archive that the parts make, without writing it down whole."""
    folder.mkdir(parents=True, exist_ok=True)
    with io.BufferedReader(Joined(parts), CHUNK) as joined, tarfile.open(fileobj=joined, mode="r|") as archive:
        archive.extractall(folder, filter="data")


class Joined(io.RawIOBase):
    """Files read as one."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.chunks = self._chunks(paths)
        self.rest = b""

    @staticmethod
    def _chunks(paths: Sequence[Path]) -> Iterator[bytes]:
        for path in paths:
            with path.open("rb") as file:
                while chunk := file.read(CHUNK):
                    yield chunk

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes; 0 at the end of the last file."""
        self.rest = self.rest or next(self.chunks, b"")
        count = min(len(buffer), len(self.rest))
        buffer[:count], self.rest = self.rest[:count], self.rest[count:]
        return count


def make_venv(folder: Path, beside: bool) -> Path:
    """A virtual environment that sees this Python's packages if it is to lie beside them. Returns its Python."""
    try:
        run([sys.executable, "-m", "venv", *(["--system-site-packages"] if beside else []), folder])
    except Refused as error:
        raise Refused(f"no virtual environment (apt install python3-venv?): {error}") from None
    python = folder / "bin/python"
    if beside and sys.prefix != sys.base_prefix:
        # The packages of a virtual environment are not the system's: a new one sees them by their path only.
        site = run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
        Path(site, "beside.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return python


def kept_packages(locked: Mapping[str, str], wheels: Path) -> dict[str, str]:
    """Torch, and each locked package that it needs otherwise: canonical name → version that is there and stays.

    The rest of the lock goes into the virtual environment, where it is found before the machine's own version.
    """
    # Wheels of pure Python can be imported from; the machine may lack this one.
    sys.path[:0] = [str(wheel) for wheel in wheels.glob("packaging-*.whl")]
    from packaging.requirements import Requirement

    kept = {"torch": version("torch") or ""}
    seen: set[tuple[str, tuple[str, ...]]] = set()
    waiting = [Requirement("torch")]
    while waiting:
        needed = waiting.pop()
        name, there = canonical(needed.name), version(needed.name)
        key = (name, tuple(sorted(needed.extras)))
        if there is None or key in seen:
            continue
        seen.add(key)
        if name in locked and (CUDA.match(name) or not needed.specifier.contains(locked[name], prereleases=True)):
            kept[name] = there
        for text in importlib.metadata.requires(needed.name) or ():
            requirement = Requirement(text)
            extras = ["", *needed.extras]
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(requirement)
    return kept


def check_torch(python: Path, before: str | None) -> None:
    """Whether the new environment has a torch, and the machine's where it had one."""
    found = run([python, "-c", "import importlib.metadata as m; print(m.version('torch'))"]).strip()
    if before not in (None, found):
        raise Refused(f"torch would be {found} instead of the machine's {before}")


def probe(folder: Path) -> None:
    """Write environment.json with the package just installed, and say what matters most of it."""
    out = folder / "environment.json"
    run([folder / ".venv/bin/inferprof", "probe", "--out", out])
    facts = json.loads(out.read_text(encoding="utf-8"))
    gpus = facts["gpus"]
    say(f"GPUs: {', '.join(str(gpu['name']) for gpu in gpus) if isinstance(gpus, list) else gpus['reason']}")
    say(f"torch {facts['packages']['torch']}, ONNX Runtime's providers: {facts['onnxruntime_providers']}")
    say(f"installed; all that the probe found is in {out}. Next: cd {folder} && make verify")


def canonical(name: str) -> str:
    """The one spelling of a package's name, as the index has it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def listed(kept: Mapping[str, str]) -> str:
    """`torch 2.11.0, cuda-bindings 13.0.3`."""
    return ", ".join(f"{name} {there}" for name, there in kept.items())


def run(command: Sequence[str | Path]) -> str:
    """Run a command to its end; what it wrote. pip reads no configuration of the machine. Raises Refused."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        env={**environment, "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        said = "; ".join(done.stdout.strip().splitlines()[-LAST_LINES:]) or "it says nothing"
        raise Refused(f"`{' '.join(words)}` exited with {done.returncode}: {said}")
    return done.stdout


def say(text: str) -> None:
    """A line of progress."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
