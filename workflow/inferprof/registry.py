"""Finds plug-ins: constants of one dataclass in the modules of one folder. The folder listing is the registry."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import Any, Protocol, TypeVar

from inferprof.errors import unknown
from inferprof.findings import Threshold
from inferprof.plugins import Backend, Check, Plot, Precision, Profiler, Quantizer


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Plugin = TypeVar("Plugin", bound=_Named)


def _constants(package: str, kind: type[Plugin]) -> dict[str, Plugin]:
    """Every module-level constant of type `kind` in `package`, by name; two of one name are a bug."""
    found: dict[str, Plugin] = {}
    for module_info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        module = importlib.import_module(f"{package}.{module_info.name}")
        for value in vars(module).values():
            if isinstance(value, kind) and found.setdefault(value.name, value) is not value:
                raise AssertionError(f"two {kind.__name__} plug-ins are named {value.name!r}")
    return dict(sorted(found.items()))


@functools.cache
def backends() -> dict[str, Backend]:
    """The runtimes, by name."""
    return _constants("inferprof.backends", Backend)


@functools.cache
def quantizers() -> dict[str, Quantizer]:
    """The ways to quantize a torch model, by name."""
    return _constants("inferprof.backends", Quantizer)


@functools.cache
def precisions() -> dict[str, Precision]:
    """The number formats, by name."""
    return _constants("inferprof.precisions", Precision)


@functools.cache
def profilers() -> dict[str, Profiler]:
    """The profilers, by name."""
    return _constants("inferprof.profilers", Profiler)


@functools.cache
def plots() -> dict[str, Plot]:
    """The plots, by name."""
    return _constants("inferprof.plots", Plot)


@functools.cache
def checks() -> dict[str, Check]:
    """The checks of the diagnosis, by name."""
    return _constants("inferprof.diagnosis", Check)


@functools.cache
def thresholds() -> dict[str, Threshold]:
    """The thresholds of the checks, by name."""
    return _constants("inferprof.diagnosis", Threshold)


def look_up(kind: str, name: str, known: dict[str, Any]) -> Any:
    """`known[name]`, or a UserError that lists what exists."""
    if name not in known:
        raise unknown(f"{kind}s", [name], known)
    return known[name]
