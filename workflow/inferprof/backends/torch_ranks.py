"""One rank of a torch model: its process group, and its part of the model."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from inferprof.allowed import Option
from inferprof.case import BATCH, PARALLEL
from inferprof.device import Device
from inferprof.errors import CaseFailed, UserError
from inferprof.model import torch_source
from inferprof.model.model_spec import ModelSpec
from inferprof.plugins import OpenRequest
from inferprof.ranks.supervise import LIMITS, Rank
from inferprof.ranks.world import WORLDS, World

if TYPE_CHECKING:
    import torch

OPTION: Final = {
    PARALLEL: Option(
        "torch: one process per GPU, and how they share the work: `{tensor: 2}`, `{sequence: 2}`, "
        "`{pipeline: 2}` or `{data: 2}`; over NCCL, and over gloo where there is no GPU",
        WORLDS,
    )
}
LOOPBACK: Final = "lo"


def world_of(request: OpenRequest) -> World | None:
    """How this process's model is divided. Raises UserError where that is asked for of a process that is alone."""
    if request.rank:
        return request.rank.world
    if world := World.of(request.variant):
        raise UserError(
            f"variant {request.variant.name}: {PARALLEL}: {world} is for measurements and captures: leave it out here"
        )
    return None


@contextlib.contextmanager
def group(rank: Rank | None, device: Device) -> Iterator[None]:
    """The process group of all ranks; none without ranks. Where something failed, the supervisor ends the others."""
    if rank is None:
        yield
        return
    import torch
    from torch import distributed

    on_gpu = device.where == "cuda"
    if on_gpu and torch.cuda.device_count() <= rank.gpu:
        raise CaseFailed(f"{PARALLEL}: {rank.world}: CUDA sees {torch.cuda.device_count()} GPUs")
    if on_gpu:
        torch.cuda.set_device(rank.gpu)
    elif rank.hosts.count == 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)  # else a host without a name in DNS finds no way
    distributed.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=rank.meeting,
        rank=rank.number,
        world_size=rank.world.size,
        timeout=datetime.timedelta(seconds=2 * LIMITS.load_s),  # the supervisor's limits come first
        device_id=torch.device("cuda", rank.gpu) if on_gpu else None,
    )
    yield
    distributed.destroy_process_group()


def divided(module: torch.nn.Module, spec: ModelSpec, world: World) -> torch.nn.Module:
    """This rank's part of a model, in the place of the whole. Raises UserError for a model that says no way."""
    if world.kind == "data":
        return _of_batch(module, spec)
    if PARALLEL not in spec.options:
        raise UserError(
            f"model {spec.name} does not say how to divide it: {spec.path} needs {PARALLEL}: module:function for "
            f"{world}; {{data: {world.size}}} divides any model with a batch"
        )
    whole = getattr(module, torch_source.WRAPPED)
    try:
        part = torch_source.user_function(spec, PARALLEL)(whole, world.kind)
    except ValueError as error:
        raise CaseFailed(f"{PARALLEL}: {world}: {error}") from None
    setattr(module, torch_source.WRAPPED, part)
    return module


def collective(name: str) -> Callable[..., Any]:
    """all_gather or reduce_scatter of one tensor; torch 2.13 has other names for them, and warns of the old ones."""
    from torch import distributed

    new, old = f"{name}_single", {"all_gather": "all_gather_into_tensor", "reduce_scatter": "reduce_scatter_tensor"}
    function: Callable[..., Any] = getattr(distributed, new, None) or getattr(distributed, old[name])
    return function


def _of_batch(module: torch.nn.Module, spec: ModelSpec) -> torch.nn.Module:
    """The model on this rank's part of the batch; the outputs of all ranks are put together on each."""
    import torch
    from torch import distributed

    rank, size = distributed.get_rank(), distributed.get_world_size()
    gather = collective("all_gather")
    of_batch = [item.dims[:1] == (BATCH,) for item in spec.inputs]

    class Share(torch.nn.Module):  # type: ignore[misc]  # torch is an untyped import here
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            pairs = zip(inputs, of_batch, strict=True)
            own = self.module(*(x.chunk(size)[rank] if divide else x for x, divide in pairs)).contiguous()
            every: torch.Tensor = own.new_empty((size * own.shape[0], *own.shape[1:]))
            gather(every, own)
            return every

    return Share()


def capture_mode() -> str:
    """Of a CUDA graph: what NCCL's watchdog asks of the driver in its own thread must not end a capture."""
    from torch import distributed

    return "thread_local" if distributed.is_initialized() else "global"


def facts(device: Device) -> dict[str, Any]:
    """What the ranks talk through."""
    import torch

    if device.where == "cpu":
        return {"library": "gloo"}
    settings = {name: value for name, value in sorted(os.environ.items()) if name.startswith("NCCL_")}
    return {"library": "nccl", "version": ".".join(map(str, torch.cuda.nccl.version())), "settings": settings}
