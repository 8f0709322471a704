"""Which lines of our lock an image gets. What the image constrains or already holds stays as it is.

NVIDIA builds the image's torch, TensorRT, numpy, ModelOpt and the rest against each other, and names their versions
in /etc/pip/constraint.txt (https://docs.nvidia.com/deeplearning/frameworks/pytorch-release-notes/rel-25-12.html).
That file may be empty, so what is installed counts as well. The Dockerfile runs this, then `pip install --no-deps`.

An image that the study cannot run in is refused in one line: an older Python, or a version that it holds or
constrains outside of a range in study.in. A range is what the code needs; a pin there is what we chose.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

PYTHON = (3, 11)
"""The oldest that the project runs on (pyproject.toml)."""

if sys.version_info < PYTHON:
    sys.exit(
        "image refused: its Python is {}.{}, and the study needs {}.{} or newer: take a newer tag "
        "(docs/versions.md)".format(*sys.version_info[:2], *PYTHON)
    )
try:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet
    from packaging.utils import canonicalize_name
except ModuleNotFoundError:
    sys.exit("image refused: its Python has no `packaging`, which tells what fits: pip install packaging in it first")

CONSTRAINT = Path("/etc/pip/constraint.txt")
OURS = frozenset(
    {
        "onnxruntime-gpu",  # the study compares machines by one build of it
        "pandas",  # our tables are written for pandas 3; nothing of the GPU stack is built against it
    }
)
"""Packages that come from our lock although the image holds another version, unless the image constrains them."""


def requirements(text: str) -> Iterator[Requirement]:
    """The requirements of a lock or constraint file that hold for this Python, without options and comments."""
    for raw in text.splitlines():
        line = raw.split(" #")[0].strip()
        if line and not line.startswith(("#", "-")):
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate():
                yield requirement


def select(lock: str, constraint: str, installed: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The requirements to install, and a line for each package that the image holds in a version other than ours.

    `installed` maps the canonical name of what the image holds to its version. A package that the image constrains
    but does not hold is installed in a version that the constraint admits.
    """
    limits = {canonicalize_name(requirement.name): requirement.specifier for requirement in requirements(constraint)}
    install, kept = [], []
    for locked in requirements(lock):
        name, version = canonicalize_name(locked.name), str(locked.specifier).removeprefix("==")
        limit = limits.get(name)
        if name in installed and (limit is not None or name not in OURS):
            if installed[name] != version:
                kept.append(f"{name} {installed[name]}, not {version}")
        elif limit is None or limit.contains(version, prereleases=True):
            install.append(f"{name}=={version}")
        else:
            install.append(f"{name}{limit}")
    return install, kept


def contradictions(needs: str, constraint: str, installed: Mapping[str, str]) -> list[str]:
    """Where what the image holds, or constrains of what it lacks, lies outside of a range that the study needs."""
    limits = {canonicalize_name(requirement.name): requirement.specifier for requirement in requirements(constraint)}
    found = []
    for requirement in requirements(needs):
        name, needed = canonicalize_name(requirement.name), requirement.specifier
        if not needed or any(part.operator == "==" for part in needed):
            continue
        limit = limits.get(name)
        if name in installed and (limit is not None or name not in OURS):
            if not needed.contains(installed[name], prereleases=True):
                found.append(f"it holds {name} {installed[name]}, and the study needs {name}{needed}")
        elif limit is not None and not _overlap(limit, needed):
            found.append(f"it constrains {name}{limit}, and the study needs {name}{needed}")
    return found


def _overlap(limit: SpecifierSet, needed: SpecifierSet) -> bool:
    """Whether both admit one of the versions that they name, or that lies just above them."""
    named = [part.version.removesuffix(".*") for part in (*limit, *needed)]
    both = limit & needed
    return any(both.contains(version, prereleases=True) for base in named for version in (base, f"{base}.0.1"))


def main() -> None:
    """Write what to install to stdout, and what stays the image's to stderr. Ends with a line where it can't."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lock", type=Path, help="our lock file")
    parser.add_argument("--needs", type=Path, help="study.in, whose ranges the image must fit")
    parser.add_argument("--constraint", type=Path, default=CONSTRAINT, help="the image's constraint file")
    arguments = parser.parse_args()
    constraint = arguments.constraint.read_text(encoding="utf-8") if arguments.constraint.exists() else ""
    installed: dict[str, str] = {
        canonicalize_name(found.metadata["Name"]): found.version for found in importlib.metadata.distributions()
    }
    needs = arguments.needs.read_text(encoding="utf-8") if arguments.needs else ""
    if refused := contradictions(needs, constraint, installed):
        sys.exit(f"image refused: {'; '.join(refused)}: take another tag (docs/versions.md)")
    install, kept = select(arguments.lock.read_text(encoding="utf-8"), constraint, installed)
    sys.stdout.writelines(f"{line}\n" for line in install)
    sys.stderr.writelines(f"kept from the image: {line}\n" for line in kept)


if __name__ == "__main__":
    main()
