"""inferprof: from models to a measured and explained report on GPU inference performance.

The command line is `inferprof.cli`; docs/architecture.md says which module does what.
"""

from __future__ import annotations

from typing import Any

__version__: str


def __getattr__(name: str) -> Any:
    """The version, looked up where somebody asks for it: that takes longer than all else that a job's client does."""
    if name != "__version__":
        raise AttributeError(name)
    import importlib.metadata

    try:
        return importlib.metadata.version("inferprof")
    except importlib.metadata.PackageNotFoundError:  # on PYTHONPATH alone, as the measuring core is run
        return "unknown"
