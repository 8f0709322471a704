"""Packs the project and its wheels for a machine without network: numbered parts, their checksums, an install script.

make offline PYTHON=3.12 PART=60M ARCH=x86_64 runs this; docs/offline.md says how to go on. It needs a network,
pip and packaging.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import io
import json
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from install import Manifest, Part, numbers, sha256  # the script beside this one
from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import parse_wheel_filename

REPOSITORY = Path(__file__).resolve().parents[1]

NAME = "inferprof-offline"
OLDEST_GLIBC = 5
"""manylinux_2_5 is manylinux1: older wheels there are none."""
GLIBC = {"x86_64": "2.28", "aarch64": "2.35"}
"""Machine, as `uname -m` names it → the oldest glibc that the lock has wheels for."""


class Refused(Exception):
    """One line: what is wrong and what to do."""


def main() -> int:
    """Write the parts, SHA256SUMS and install.sh. Returns the exit code."""
    arguments = parse(sys.argv[1:])
    try:
        with tempfile.TemporaryDirectory(prefix="inferprof-offline-") as folder:
            packed = {machine: Path(folder, machine) for machine in dict.fromkeys(arguments.arch)}
            for machine, wheels in packed.items():
                wheels.mkdir()
                download(arguments, machine, wheels)
            revision = git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*").decode().strip()
            if revision.endswith("-dirty"):
                sys.stderr.write("make offline: what is not committed is not packed\n")
            manifests = write_all(arguments, packed, revision.removesuffix("-dirty"))
    except Refused as error:
        sys.stderr.write(f"make offline: {error}\n")
        return 2
    parts = [part for manifest in manifests for part in manifest.parts]
    sys.stdout.write(
        f"{arguments.out}: {len(parts)} parts, {sum(part.bytes for part in parts) / 1e6:.0f} MB, for "
        f"{' and '.join(packed)}. Copy them with install.sh, then: sh install.sh\n"
    )
    return 0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("requirements", type=Path, nargs="+", help="lock files")
    parser.add_argument("--python", type=_python, required=True, help="version of the target's Python: 3.12")
    parser.add_argument("--part", type=_size, default=60 * 10**6, help="largest size of a part (default 60M)")
    parser.add_argument(
        "--torch", default="there", help="`there`, or what to pack: 'torch==2.13.0 [--index-url URL]'"
    )
    parser.add_argument(
        "--arch", choices=GLIBC, nargs="+", default=["x86_64"], help="the target's `uname -m`; install.sh chooses"
    )
    parser.add_argument("--glibc", type=_glibc, help=f"the target's glibc or an older (default {GLIBC})")
    parser.add_argument("--out", type=Path, default=Path("dist/offline"), help="folder of the parts, made anew")
    return parser.parse_args(argv)


# --- wheels ----------------------------------------------------------------------------------------------------


def download(arguments: argparse.Namespace, machine: str, wheels: Path) -> None:
    """The wheels of all locked packages for the target, those without any built here, and torch's if asked for."""
    locks = [lock.read_text(encoding="utf-8") for lock in arguments.requirements]
    pins = [pin for lock in locks for pin in pinned(lock, arguments.python, machine)]
    listed = wheels.with_name(f"{machine}.txt")
    # pip itself is in no lock: install.sh runs it out of its wheel, where the machine has none.
    listed.write_text("".join(f"{pin}\n" for pin in sorted({*pins, "pip"})), encoding="utf-8")
    target = platform_options(arguments.python, arguments.glibc or GLIBC[machine], machine)
    sys.stdout.write(f"downloading {len({*pins, 'pip'})} wheels for Python {arguments.python} on {machine}\n")
    sys.stdout.flush()
    pip("download", "--no-deps", *target, "--dest", str(wheels), "--requirement", str(listed))
    if arguments.torch != "there":
        wanted = ("--only-binary=:all:", "--constraint", str(listed), *shlex.split(arguments.torch))
        pip("download", *target, "--dest", str(wheels), *wanted)
    for source in sorted(path for path in wheels.iterdir() if path.suffix != ".whl"):
        pip("wheel", "--no-deps", "--wheel-dir", str(wheels), str(source))
        source.unlink()
    for wheel in wheels.iterdir():
        require_portable(wheel.name, arguments.python, machine)


def platform_options(python: str, glibc: str, machine: str) -> list[str]:
    """pip's options for the wheels of a target."""
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(numbers(glibc)[1], OLDEST_GLIBC - 1, -1)]
    platforms = [word for tag in (*tags, f"manylinux2014_{machine}") for word in ("--platform", tag)]
    return ["--python-version", python, "--implementation", "cp", *platforms]


def pinned(lock: str, python: str, machine: str = "x86_64") -> Iterator[str]:
    """The `name==version` lines of a lock that hold for the target; pip would ask the Python that it runs in."""
    target = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_version": f"{python}.0",
        **{"implementation_name": "cpython", "platform_python_implementation": "CPython"},
        **{"sys_platform": "linux", "platform_system": "Linux", "platform_machine": machine, "os_name": "posix"},
    }
    for raw in lock.splitlines():
        line = re.split(r"\s+#|^#", raw)[0].strip()
        if line and not line.startswith("-"):
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate(target):
                yield f"{requirement.name}{requirement.specifier}"


def require_portable(name: str, python: str, machine: str = "x86_64") -> None:
    """A wheel that was built here must be pure: what is compiled here may not run there."""
    if not any(runs_there(tag, python, machine) for tag in parse_wheel_filename(name)[3]):
        raise Refused(
            f"{name} is no wheel for Python {python} on any Linux of {machine}: its package has none, and needs a "
            "compiler"
        )


def runs_there(tag: Tag, python: str, machine: str) -> bool:
    """Whether a wheel's tag is one of the target's; which glibc it needs pip has looked at."""
    plain = python.replace(".", "")
    interpreters = ("py3", f"py{plain}", f"cp{plain}")
    linux = tag.platform.startswith("manylinux") and tag.platform.endswith(f"_{machine}")
    if tag.abi == "abi3":
        return linux
    return tag.interpreter in interpreters and (linux or tag.platform == "any")


def pip(*arguments: str) -> None:
    """Run pip. Raises Refused with its last line."""
    done = subprocess.run([sys.executable, "-m", "pip", *arguments, "--quiet"], capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise Refused(f"pip {arguments[0]}: {(errors or ['failed'])[0]}")


# --- parts -----------------------------------------------------------------------------------------------------


def write_all(arguments: argparse.Namespace, packed: Mapping[str, Path], revision: str) -> list[Manifest]:
    """The parts of each machine, install.sh and SHA256SUMS, in a folder without older ones."""
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    for old in [*out.glob(f"{NAME}*"), *out.glob("install.sh"), *out.glob("SHA256SUMS")]:
        old.unlink()
    manifests = []
    for machine, wheels in packed.items():
        name = NAME if machine == "x86_64" else f"{NAME}-{machine}"
        parts = tuple(write_parts(out, name, arguments.part, wheels))
        glibc = arguments.glibc or GLIBC[machine]
        manifests.append(Manifest(arguments.python, glibc, arguments.torch, revision, parts, machine))
    write_installer(out, manifests)
    return manifests


def write_parts(out: Path, name: str, size: int, wheels: Path) -> list[Part]:
    """Write the archive of project and wheels as parts of at most `size` bytes."""
    with tempfile.TemporaryFile() as archive:
        write_archive(archive, wheels)
        total = archive.tell()
        archive.seek(0)
        digits = max(2, len(str(-(-total // size))))
        names: list[str] = []
        while chunk := archive.read(size):
            names.append(f"{name}.{len(names) + 1:0{digits}d}")
            (out / names[-1]).write_bytes(chunk)
    return [Part(part, (out / part).stat().st_size, sha256(out / part)) for part in names]


def write_archive(out: IO[bytes], wheels: Path) -> None:
    """A tar of the committed project and, in wheels/, the wheels: not packed again, since wheels are."""
    with tarfile.open(fileobj=out, mode="w") as archive:
        with tarfile.open(fileobj=io.BytesIO(git("archive", "--format=tar", "HEAD"))) as project:
            for member in project:
                archive.addfile(member, project.extractfile(member) if member.isfile() else None)
        for wheel in sorted(wheels.iterdir()):
            info = tarfile.TarInfo(f"wheels/{wheel.name}")
            info.size = wheel.stat().st_size
            with wheel.open("rb") as file:
                archive.addfile(info, file)


def write_installer(out: Path, manifests: Sequence[Manifest]) -> None:
    """install.sh: the template, the installer and the manifests in one file; SHA256SUMS of all."""
    content = json.dumps([dataclasses.asdict(manifest) for manifest in manifests], ensure_ascii=True)
    call = f"sys.exit(main(chosen(json.loads({content!r})), sys.argv[1:]))"
    installer = (REPOSITORY / "offline/install.py").read_text(encoding="utf-8")
    script = (REPOSITORY / "offline/install.sh").read_text(encoding="utf-8")
    script = script.replace("@PYTHON@", manifests[0].python).replace("@INSTALLER@", f"{installer}\n\n{call}")
    (out / "install.sh").write_text(script, encoding="utf-8")
    sums = {part.name: part.sha256 for manifest in manifests for part in manifest.parts}
    write_sums(out, sums | {"install.sh": hashlib.sha256(script.encode()).hexdigest()})


def write_sums(out: Path, sums: Mapping[str, str]) -> None:
    """What `sha256sum --check SHA256SUMS` reads."""
    (out / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()), encoding="utf-8")


def git(*arguments: str) -> bytes:
    """What git says of this checkout."""
    done = subprocess.run(["git", "-C", str(REPOSITORY), *arguments], capture_output=True)
    if done.returncode:
        raise Refused(f"git {arguments[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def _python(text: str) -> str:
    if not re.fullmatch(r"3\.\d+", text) or numbers(text) < (3, 11):
        raise argparse.ArgumentTypeError(f"{text!r} is no version of Python from 3.11 on; write it as 3.12")
    return text


def _glibc(text: str) -> str:
    if not re.fullmatch(r"2\.\d+", text) or numbers(text) < (2, OLDEST_GLIBC):
        raise argparse.ArgumentTypeError(f"{text!r} is no version of glibc; write it as 2.28")
    return text


def _size(text: str) -> int:
    match = re.fullmatch(r"([1-9]\d*)([KMG])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write it as 60M")
    return int(match[1]) * (10**3, 10**6, 10**9)["KMG".index(match[2])]


if __name__ == "__main__":
    sys.exit(main())
