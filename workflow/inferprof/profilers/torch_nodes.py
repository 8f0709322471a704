"""Kineto with a range around each module of torch: which operator of which module launched which kernels.

Ranges and operators slow the run, and a CUDA graph would have none of them: hence a capture apart from Kineto's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from inferprof.case import Case
from inferprof.machine.hardware import Machine
from inferprof.plugins import Join, Profiler
from inferprof.profilers import kineto
from inferprof.profilers.capturing import first_refusal, other_reader
from inferprof.readers.capture_file import identify

if TYPE_CHECKING:
    import pandas as pd

NAME: Final = "torch_nodes"
BACKEND: Final = "torch_eager"
"""The backend whose modules are there when it runs; torch.compile makes kernels of many of them."""


def command(argv: Sequence[str], out: Path) -> list[str]:
    """The run itself, told to record with modules."""
    return [*kineto.command(argv, out), "--modules"]


@contextlib.contextmanager
def record(out: Path, rank: int = 0) -> Iterator[None]:
    """As kineto.record, with modules. Of several ranks the first: the others' modules are the same."""
    with contextlib.ExitStack() as stack:
        if rank == 0:
            stack.enter_context(kineto.record(out))
            stack.enter_context(named_modules())
        yield


@contextlib.contextmanager
def named_modules() -> Iterator[None]:
    """A range around each call of a torch module inside the block, with the module's name in the outermost one.

    A module that is called by itself has its class as its name.
    """
    from torch.nn.modules import module as hooks
    from torch.profiler import record_function

    from inferprof.tables.trace.timeline import MODULE

    names: dict[int, str] = {}
    opened: list[Any] = []

    def before(module: Any, inputs: Any) -> None:
        if not opened:
            names.clear()
            names.update({id(submodule): name for name, submodule in module.named_modules()})
        label = names.get(id(module)) or type(module).__name__
        annotation = record_function(f"{MODULE}{label}")
        annotation.__enter__()
        opened.append(annotation)

    def after(module: Any, inputs: Any, outputs: Any) -> None:
        opened.pop().__exit__(None, None, None)

    handles = (
        hooks.register_module_forward_pre_hook(before),
        hooks.register_module_forward_hook(after, always_call=True),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def read(path: Path) -> pd.DataFrame:
    """The tidy table of a trace with operators and modules, ours or another's. Raises UserError for anything else."""
    from inferprof.readers import kineto_json
    from inferprof.tables.nodes import torch_kernels

    if (kind := identify(path)).name != kineto.NAME:
        raise other_reader(path, kind)
    return torch_kernels.tidy(kineto_json.read_timeline(path, within_torch=True), NAME)


def attributed(table: pd.DataFrame) -> pd.DataFrame:
    """The kernels of a table with the operators and modules that launched them."""
    from inferprof.tables.nodes import torch_kernels

    return torch_kernels.attributed(table)


def inferences(table: pd.DataFrame) -> int:
    """How many iterations a table is of."""
    from inferprof.tables.trace import kernel_compare

    return kernel_compare.iterations(table)


def refuses(case: Case, machine: Machine) -> str | None:
    """Why a case cannot be recorded here."""
    if case.backend != BACKEND:
        return f"{NAME}: {case.backend} runs no modules of torch"
    return first_refusal(NAME, (kineto.KINETO,), case, machine)


TORCH_NODES: Final = Profiler(
    name=NAME,
    suffix=".json.gz",
    refuses=refuses,
    command=command,
    read=read,
    finish=kineto.finish,
    rank=30,
    owner="module",
    join=Join(attributed, inferences),
)
