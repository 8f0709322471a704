"""Which lines of our lock an image gets. What the image constrains or already holds stays as it is.

NVIDIA builds the image's torch, TensorRT, numpy, ModelOpt and the rest against each other, and names their versions
in /etc/pip/constraint.txt (https://docs.nvidia.com/deeplearning/frameworks/pytorch-release-notes/rel-25-12.html).
That file may be empty, so what is installed counts as well. The Dockerfile runs this, then `pip install --no-deps`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def main() -> None:
    """Write what to install to stdout, and what stays the image's to stderr."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lock", type=Path, help="our lock file")
    parser.add_argument("--constraint", type=Path, default=CONSTRAINT, help="the image's constraint file")
    arguments = parser.parse_args()
    constraint = arguments.constraint.read_text(encoding="utf-8") if arguments.constraint.exists() else ""
    installed: dict[str, str] = {
        canonicalize_name(found.metadata["Name"]): found.version for found in importlib.metadata.distributions()
    }
    install, kept = select(arguments.lock.read_text(encoding="utf-8"), constraint, installed)
    sys.stdout.writelines(f"{line}\n" for line in install)
    sys.stderr.writelines(f"kept from the image: {line}\n" for line in kept)


if __name__ == "__main__":
    main()
