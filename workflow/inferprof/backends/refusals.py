"""Reasons why a machine cannot run a case: cheap, one line each, None where there is no objection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inferprof import registry
from inferprof.case import Case
from inferprof.errors import CaseFailed, UserError, failure_of, without_exit
from inferprof.machine.hardware import Machine, parse_version
from inferprof.plugins import BuildRequest


def first(*reasons: str | None) -> str | None:
    """The first objection."""
    return next((reason for reason in reasons if reason), None)


def of(plugin: str, refuses: Callable[..., str | None], *asked: Any) -> str | None:
    """What a plug-in's `refuses` says; where it fails, that: a case that nobody can answer for does not run.

    UserError stays one: it is about the config.
    """
    try:
        with without_exit():
            reason: object = refuses(*asked)
    except UserError:
        raise
    except Exception as error:
        return f"{plugin} cannot say whether it refuses this: {failure_of(error)}"
    if not isinstance(reason, str | None):
        return f"{plugin} cannot say whether it refuses this: it gave {reason!r}; allowed: a reason, or None"
    return " ".join(reason.split()) if reason else None


def built(build: Callable[[BuildRequest], dict[str, Any]], request: BuildRequest) -> dict[str, Any]:
    """What a backend builds, as .build.json has it. Raises CaseFailed for sizes above the model's."""
    if too_large := request.spec.exceeds(request.shape):
        raise CaseFailed(too_large)
    return {"status": "ok", "reason": None, **build(request)}


def no_gpu(machine: Machine) -> str | None:
    """For runtimes that only compute on a GPU."""
    return "no GPU" if machine.gpu is None else None


def not_installed(machine: Machine, package: str) -> str | None:
    """For runtimes whose package is missing."""
    return None if package in machine.packages else f"{package} is not installed"


def too_old(machine: Machine, package: str, floor: str) -> str | None:
    """For packages below the oldest version that is supported."""
    if machine.version(package) >= parse_version(floor):
        return None
    return f"{package} {machine.packages.get(package)}: needs {floor} or newer"


def format_not_in_hardware(case: Case, machine: Machine) -> str | None:
    """`nvfp4 on compute capability 9.0: needs 10.0`, for formats that this GPU's tensor cores do not compute in."""
    precision = registry.precisions().get(case.precision)
    needed = precision.needs_compute_capability if precision else None
    if machine.gpu is None or needed is None or machine.gpu.compute_capability >= needed:
        return None
    return f"{case.precision} on compute capability {dotted(machine.gpu.compute_capability)}: needs {dotted(needed)}"


def no_kernels(case: Case) -> str | None:
    """For formats whose ONNX operators only TensorRT knows, in runtimes that are not built on it."""
    precision = registry.precisions().get(case.precision)
    if precision is None or not precision.tensorrt_alone:
        return None
    return f"ONNX Runtime has no kernels of its own for the operators of {case.precision}"


def compute_capability_not_in(machine: Machine, supported: tuple[tuple[int, int], ...], runtime: str) -> str | None:
    """For runtimes with a closed list of GPUs."""
    if machine.gpu is None or machine.gpu.compute_capability in supported:
        return None
    capability, allowed = dotted(machine.gpu.compute_capability), ", ".join(map(dotted, supported))
    return f"{runtime} does not run on compute capability {capability}: supports {allowed}"


def dotted(compute_capability: tuple[int, int]) -> str:
    """(9, 0) → `9.0`."""
    return f"{compute_capability[0]}.{compute_capability[1]}"
