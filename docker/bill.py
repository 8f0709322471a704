"""What is in the image, as a CycloneDX bill of materials: Debian's and Python's packages with their versions.

The Dockerfile runs this last; any CycloneDX tool reads what it writes. Standard library only.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import subprocess
import sys
from urllib.parse import quote


def component(kind: str, name: str, version: str) -> dict[str, str]:
    """One package; its purl is its name in the format's own spelling."""
    return {"type": "library", "name": name, "version": version, "purl": f"pkg:{kind}/{name}@{quote(version)}"}


def debian() -> list[dict[str, str]]:
    """The packages that dpkg lists; none where there is no dpkg."""
    try:
        shown = ["dpkg-query", "--show", "--showformat=${Package} ${Version}\\n"]
        listed = subprocess.run(shown, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        return []
    kind = f"deb/{platform.freedesktop_os_release()['ID']}"
    return [component(kind, *line.split()) for line in listed.splitlines() if len(line.split()) == 2]


def python() -> list[dict[str, str]]:
    """The packages of this Python, each once: the one that is imported."""
    versions: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        versions.setdefault(distribution.metadata["Name"].lower().replace("_", "-"), distribution.version)
    return [component("pypi", name, version) for name, version in sorted(versions.items())]


if __name__ == "__main__":
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": [*debian(), *python()]}
    json.dump(bill, sys.stdout, indent=1)
