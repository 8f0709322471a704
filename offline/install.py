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
ROOM = 4
"""Bytes of disk per byte of the parts: wheels of 0.8 GB made an environment of 2.1 GB."""
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
    machine: str = "x86_64"
    """As `uname -m` names it."""

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Manifest:
        """The inverse of dataclasses.asdict."""
        return cls(**{**content, "parts": tuple(Part(**part) for part in content["parts"])})


def chosen(contents: Sequence[Mapping[str, Any]]) -> Manifest:
    """The manifest of this machine; the first where none is, which check_machine then refuses."""
    manifests = [Manifest.of(content) for content in contents]
    return next((manifest for manifest in manifests if manifest.machine == os.uname().machine), manifests[0])


def main(manifest: Manifest, arguments: Sequence[str]) -> int:
    """Install; `arguments` are the folder of the parts and, if wanted, the folder to make. Returns the exit code."""
    parts = Path(arguments[0])
    folder = Path(*arguments[1:2] or ["inferprof"]).absolute()
    try:
        check_machine(manifest)
        if folder.exists() and any(folder.iterdir()):
            raise Refused(f"{folder} is there already and not empty: name another folder, sh install.sh FOLDER")
        check_parts(manifest, parts)
        check_room(manifest, folder)
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
    machine = os.uname().machine
    if sys.platform != "linux" or machine != manifest.machine:
        raise Refused(
            f"the wheels are for Linux on {manifest.machine}, and this is {sys.platform} on {machine}: "
            f"pack for it: make offline ARCH={machine}"
        )
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


def check_room(manifest: Manifest, folder: Path) -> None:
    """Whether there is room for the wheels, and for what they unpack to."""
    disk = next(parent for parent in folder.parents if parent.exists())
    needed, free = ROOM * sum(part.bytes for part in manifest.parts), shutil.disk_usage(disk).free
    if free < needed:
        raise Refused(
            f"{disk} has {free / 1e9:.1f} GB free, and {needed / 1e9:.1f} GB are needed: sh install.sh FOLDER"
        )


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
    beside = manifest.torch == "there"
    python = make_venv(folder / ".venv", beside)
    install_wheels(python, folder / "wheels", beside)
    run([*pip_install(python, folder / "wheels"), "--no-build-isolation", "--editable", folder])
    check_torch(python, version("torch") if beside else None)
    # Not fatal: the machine may bring clashes of its own, and the lock leaves out on purpose what no study needs.
    _, clashes = attempt([python, "-m", "pip", "check"])
    say("pip check says:\n  " + "\n  ".join(clashes.splitlines()))
    shutil.rmtree(folder / "wheels")
    # make leaves an environment alone that is newer than the lock files.
    (folder / ".venv/.installed").touch()
    probe(folder)


def install_wheels(python: Path, wheels: Path, beside: bool) -> None:
    """Install the wheels, apart from those whose package stays as it is; constraints see to it that it does."""
    found = {canonical(wheel.name.split("-")[0]): wheel for wheel in sorted(wheels.glob("*.whl"))}
    kept = kept_packages({name: wheel.name.split("-")[1] for name, wheel in found.items()}, wheels) if beside else {}
    wanted = [str(wheel) for name, wheel in found.items() if name not in kept]
    constraints, requirements = wheels / "constraints.txt", wheels / "requirements.txt"
    constraints.write_text("".join(f"{name}=={there}\n" for name, there in kept.items()), encoding="utf-8")
    requirements.write_text("".join(f"{wheel}\n" for wheel in wanted), encoding="utf-8")
    staying = ", ".join(f"{name} {there}" for name, there in kept.items())
    say(f"installing {len(wanted)} wheels; as they are stay: {staying or 'none'}")
    run([*pip_install(python, wheels), "--constraint", constraints, "--requirement", requirements])


def pip_install(python: Path, wheels: Path) -> list[str | Path]:
    """pip, run out of its wheel, without network and without dependencies: the lock has them all.

    Compiling takes minutes; Python does it when a module is first imported. What the machine holds in the same
    version is installed all the same, or its programs would not be in .venv/bin.
    """
    (pip,) = wheels.glob("pip-*.whl")
    options = ["--quiet", "--no-index", "--no-deps", "--no-compile", "--ignore-installed"]
    return [python, pip / "pip", "install", *options]


def unpack(parts: Sequence[Path], folder: Path) -> None:
    """Extract the archive that the parts make, without writing it down whole."""
    folder.mkdir(parents=True, exist_ok=True)
    with io.BufferedReader(Joined(parts), CHUNK) as joined, tarfile.open(fileobj=joined, mode="r|") as archive:
        # Python before 3.11.4 has no filters, and the parts are what pack.py wrote: their hashes say so.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
        archive.extractall(folder)


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
    # Debian's python3 has no pip to put there without python3-venv, and Python 3.11 would put an old setuptools too.
    run([sys.executable, "-m", "venv", "--without-pip", *(["--system-site-packages"] if beside else []), folder])
    python = folder / "bin/python"
    if beside and sys.prefix != sys.base_prefix:
        # The packages of a virtual environment are not the system's: a new one sees them by their path only.
        site = run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
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
    found = run([python, "-c", "import importlib.metadata as m; print(m.version('torch'))"])
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


def run(command: Sequence[str | Path]) -> str:
    """What a command wrote. Raises Refused where it fails."""
    code, said = attempt(command)
    if code:
        last = "; ".join(said.splitlines()[-LAST_LINES:]) or "it says nothing"
        raise Refused(f"`{' '.join(map(str, command))}` exited with {code}: {last}")
    return said


def attempt(command: Sequence[str | Path]) -> tuple[int, str]:
    """The exit code of a command and what it wrote. pip reads no configuration of the machine."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    done = subprocess.run(
        [str(word) for word in command],
        env={**environment, "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout.strip()


def say(text: str) -> None:
    """A line of progress."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
