"""Finds plug-ins: constants of one dataclass in the modules of one folder. The folder listing is the registry.

Modules outside the package join in by the environment variable INFERPROF_PLUGINS: Python files, separated as in PATH.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol, TypeVar

from inferprof import contract
from inferprof.allowed import ANY, Allowed, Option, check
from inferprof.errors import UserError, reason_of, unknown, without_exit
from inferprof.findings import Threshold
from inferprof.plugins import Backend, BuilderOption, Check, Owner, Plot, Precision, Profiler, Quantizer
from inferprof.runtime_option import RuntimeOption


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Plugin = TypeVar("Plugin", bound=_Named)


OUTSIDE_MODULE: Final = "inferprof_plugin_"
"""How the names of modules begin that come from such a file."""
OUTSIDE: Final = "INFERPROF_PLUGINS"
"""The environment variable that names Python files whose constants are plug-ins too."""


def load_outside(files: str) -> list[ModuleType]:
    """The modules that the value of INFERPROF_PLUGINS names. Raises UserError for one that cannot be loaded."""
    return [_loaded(Path(file).resolve()) for file in files.split(os.pathsep) if file]


@functools.cache
def _loaded(path: Path) -> ModuleType:
    """A file as a module, under a name that follows from its path: another process finds its functions again."""
    name = f"{OUTSIDE_MODULE}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UserError(
            f"{OUTSIDE}: {path} is no Python file; give paths of .py files, with {os.pathsep!r} between them"
        )
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with without_exit():
            spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise UserError(f"{OUTSIDE}: {path} cannot be loaded: {reason_of(error)}") from error
    plugins = {constant: value for constant, value in vars(module).items() if _is_plugin(value)}
    if not plugins:
        raise UserError(f"{OUTSIDE}: {path} holds no plug-in; give it a module-level constant, such as a Backend(…)")
    for constant, value in plugins.items():  # before a study runs for hours, also where the verb uses none of them
        _require_whole(module, constant, value)
    return module


def _require_whole(module: ModuleType, constant: str, plugin: Any) -> None:
    """Raises UserError for a plug-in that is not what its kind asks for."""
    if wrong := contract.broken(plugin):
        raise UserError(f"{module.__file__}: {type(plugin).__name__} {constant}: {wrong}")


def from_outside(function: Callable[..., Any]) -> bool:
    """Whether a function of a plug-in is out of such a file."""
    return function.__module__.startswith(OUTSIDE_MODULE)


def _is_plugin(value: object) -> bool:
    """Whether a constant of a module is of a dataclass of ours: one with a name, as each kind of plug-in has."""
    kind = type(value)
    return dataclasses.is_dataclass(kind) and kind.__module__.startswith(f"{__package__}.") and hasattr(value, "name")


def _inside(package: str, folders: Iterable[str]) -> Iterator[ModuleType]:
    """The modules in the folders of a package."""
    for module_info in pkgutil.iter_modules(folders):
        try:
            with without_exit():
                module = importlib.import_module(f"{package}.{module_info.name}")
        except Exception as error:
            file = f"{package.replace('.', '/')}/{module_info.name}.py"
            raise UserError(f"{file} cannot be loaded: {reason_of(error)}") from error
        yield module


def sources(*packages: str) -> list[str]:
    """Where plug-ins of our packages come from, so that a new one is news: their modules, and the files outside with
    a digest of each. Imports none of them."""
    # Not by find_spec, which imports the packages around one: pandas with that of the report.
    folders = [str(Path(__file__).parent.joinpath(*package.split(".")[1:])) for package in packages]
    outside = [Path(file) for file in os.environ.get(OUTSIDE, "").split(os.pathsep) if file]
    return [
        *sorted(module.name for module in pkgutil.iter_modules(folders)),
        *(f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in outside if file.is_file()),
    ]


def constants(package: str, kind: type[Plugin]) -> dict[str, Plugin]:
    """Every module-level constant of type `kind` in `package` and in the modules outside, by name.

    Raises UserError where two have one name.
    """
    folders = tuple(importlib.import_module(package).__path__)
    plugins: dict[str, Plugin] = _all(package, folders, kind, os.environ.get(OUTSIDE, ""))
    return plugins


@functools.cache
def _all(package: str, folders: tuple[str, ...], kind: type[Any], outside: str) -> dict[str, Any]:
    """`constants`, of a package in these folders and with what INFERPROF_PLUGINS is."""
    plugins: dict[str, Any] = {}
    for module in (*_inside(package, folders), *load_outside(outside)):
        for constant, value in vars(module).items():
            if not isinstance(value, kind):
                continue
            _require_whole(module, constant, value)
            if plugins.setdefault(value.name, value) is not value:
                raise UserError(f"{module.__file__}: another {kind.__name__} is named {value.name!r} too; rename one")
    return dict(sorted(plugins.items()))


def backends() -> dict[str, Backend]:
    """The runtimes, by name."""
    return constants("inferprof.backends", Backend)


def builder_options(backend: str) -> dict[str, BuilderOption]:
    """The options that a backend's builder of engines understands, by name."""
    options = constants("inferprof.backends", BuilderOption)
    return {name: option for name, option in options.items() if backend in option.backends}


def runtime_options(backend: str) -> dict[str, RuntimeOption]:
    """The options that a backend hands on to its runtime, by name."""
    options = constants("inferprof.backends", RuntimeOption)
    return {name: option for name, option in options.items() if backend in option.backends}


def options_of(backend: Backend) -> dict[str, Option]:
    """The options of a variant that a backend understands."""
    built = {name: each.option for name, each in builder_options(backend.name).items()}
    handed_on = {name: each.option for name, each in runtime_options(backend.name).items()}
    own = {
        name: option if isinstance(option, Option) else Option(option, ANY)
        for name, option in backend.options.items()
    }
    return {**own, **built, **handed_on}


def allowed_of(backend: Backend) -> dict[str, Allowed]:
    """The options of a variant that a backend understands → what they may be."""
    return {name: option.allowed for name, option in options_of(backend).items()}


def check_precision(precision: Precision, options: Mapping[str, Any]) -> None:
    """Raise UserError for an option that a number format lacks, or a value that it can't have."""
    check(f"precision {precision.name}", options, {**dict.fromkeys(precision.options, ANY), **precision.allows})


def quantizers() -> dict[str, Quantizer]:
    """The ways to quantize a torch model, by name."""
    return constants("inferprof.backends", Quantizer)


def precisions() -> dict[str, Precision]:
    """The number formats, by name, in their order."""
    formats = constants("inferprof.precisions", Precision)
    return dict(sorted(formats.items(), key=lambda item: (item[1].order, item[0])))


def profilers() -> dict[str, Profiler]:
    """The profilers, by name."""
    return constants("inferprof.profilers", Profiler)


def tools(fits: Callable[[Profiler], object]) -> tuple[str, ...]:
    """The names of the profilers that fit. Of several that watched a case the first speaks for it."""
    ranked = sorted(profilers().values(), key=lambda profiler: (profiler.rank, profiler.name))
    return tuple(profiler.name for profiler in ranked if fits(profiler))


def tracers() -> tuple[str, ...]:
    """The profilers that trace iterations, kernels and copies."""
    return tools(lambda profiler: profiler.traces)


def counters() -> tuple[str, ...]:
    """The profilers that read counters of kernels."""
    return tools(lambda profiler: profiler.counts)


def sessions() -> tuple[str, ...]:
    """The profilers that tell which execution provider ran a node.

    Where the GPU's idle time is at hand, as with those that trace too, the gain of a move is bounded closely.
    """
    return tools(lambda profiler: profiler.session)


def joining(*owners: Owner) -> tuple[str, ...]:
    """The profilers that tie kernels to what owns them."""
    return tools(lambda profiler: profiler.join and profiler.owner in owners)


def timing() -> tuple[str, ...]:
    """The profilers that time kernels, or the layers of engines, whose formats then tell those of the kernels."""
    return tools(lambda profiler: profiler.traces or profiler.join or profiler.owner == "layer")


def plots() -> dict[str, Plot]:
    """The plots, by name."""
    return constants("inferprof.plots", Plot)


def checks() -> dict[str, Check]:
    """The checks of the diagnosis, by name."""
    return constants("inferprof.diagnosis", Check)


def thresholds() -> dict[str, Threshold]:
    """The thresholds of the checks, by name."""
    return constants("inferprof.diagnosis", Threshold)


def look_up(kind: str, name: str, registered: dict[str, Any]) -> Any:
    """`registered[name]`, or a UserError that lists what exists."""
    if name not in registered:
        raise unknown(f"{kind}s", [name], registered)
    return registered[name]
