"""PyTorch, eager and compiled: the floor that the engines are compared with. On the GPU where there is one."""

from __future__ import annotations

import contextlib
import functools
import shutil
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from inferprof.allowed import Option, one_of
from inferprof.backends import (
    inductor,
    refusals,
    torch_graphs,
    torch_options,
    torch_quantize,
    torch_ranks,
    triton_tuning,
)
from inferprof.backends.options import RUN, TF32, THREADS, some
from inferprof.backends.torch_buffers import as_buffer, as_tensor
from inferprof.case import Case, Shape, Variant
from inferprof.device import Buffer, Device, Where
from inferprof.errors import CaseFailed, UserError
from inferprof.machine.hardware import Machine
from inferprof.model import export, torch_source
from inferprof.model.model_spec import ModelSpec
from inferprof.plugins import Backend, OpenRequest, Quantizer, Session
from inferprof.ranks import world as worlds
from inferprof.ranks.world import World

if TYPE_CHECKING:
    import torch

DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""The precisions that a torch model is cast to, with torch's names for them."""
COMPILERS = ("c++", "g++", "clang++")
"""torch.compile compiles C++ for the CPU, and launchers of its Triton kernels for the GPU."""


class TorchSession:
    """Implements plugins.Session. Results are new tensors at each run, as torch makes them."""

    def __init__(
        self, call: Callable[..., torch.Tensor], spec: ModelSpec, device: Device, *, graph: bool, weights: int
    ) -> None:
        self._call = call
        self._input_names = [item.name for item in spec.inputs]
        self._output_name = export.output_name(spec)
        self._device = device
        self._graph = graph
        self._weights = weights
        self.operation: dict[str, Any] | None = None
        self.tuning = triton_tuning.Watch()
        self._inputs: tuple[torch.Tensor, ...] = ()
        self._result: torch.Tensor | None = None
        self._stream = _stream(device)
        self._bound: list[tuple[int, tuple[int, ...]]] = []
        self._captured = False
        self._run = self._eager

    def bind(self, inputs: Mapping[str, Buffer]) -> None:
        """View the buffers as tensors, without a copy, in the order of the model's inputs."""
        buffers = [inputs[name] for name in self._input_names]
        bound = [(buffer.ptr, buffer.shape) for buffer in buffers]
        if self._captured and bound == self._bound:
            return  # the graph reads these addresses already
        self._inputs = tuple(map(as_tensor, buffers))
        if bound != self._bound:
            self._run, self._captured, self._bound = self._eager, False, bound

    def enqueue(self) -> None:
        """Run once on the device's stream."""
        import torch

        if self._stream is not None:  # torch has one current stream, and sessions of a pipeline take turns
            torch.cuda.set_stream(self._stream)
        self._run()

    def _eager(self) -> None:
        self._result = self._call(*self._inputs)

    def outputs(self) -> dict[str, Buffer]:
        """The result of the last run; empty before the first."""
        if self._result is None:
            return {}
        return {self._output_name: as_buffer(self._result, self._device)}

    def capture_graph(self) -> bool:
        """Capture one run into a CUDA graph of torch's own, whose memory pool keeps the intermediate results."""
        if not self._graph:
            return False
        import torch

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode=torch_ranks.capture_mode()):
            self._eager()
        self._run, self._captured = graph.replay, True
        return True

    def memory(self) -> dict[str, int]:
        """What the weights take, and on the GPU what torch's caching allocator has held at most, in bytes."""
        import torch

        if self._device.where == "cpu":
            return {"weights": self._weights}
        allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        return {"weights": self._weights, "allocated_peak": allocated, "reserved_peak": reserved}

    def graphs(self, request: OpenRequest, plan: torch_graphs.Plan) -> dict[str, Any]:
        """torch_graphs.measure of this model. The session's own graph goes first, and its memory with it."""
        import torch

        self._run, self._captured, self._result = self._eager, False, None
        with torch.cuda.stream(self._stream):
            return torch_graphs.measure(self._call, request, plan)

    def close(self) -> None:
        """Let go of the model and of every tensor."""
        self._device.synchronize()
        self._inputs, self._result = (), None
        self._call = self._run = _closed


def _closed(*_: Any) -> Any:
    raise AssertionError("the session is closed")


def _cast(module: torch.nn.Module, precision: str) -> torch.nn.Module:
    """The module computing in `precision`, with inputs and outputs as in the ONNX graphs: fp32 and integers."""
    import torch

    dtype = getattr(torch, DTYPES[precision])
    if dtype == torch.float32:
        return module

    class Cast(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module.to(dtype)

        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.module(*(x.to(dtype) if x.is_floating_point() else x for x in inputs))
            return result.float()

    return Cast()


_modules: weakref.WeakValueDictionary[tuple[Any, ...], torch.nn.Module] = weakref.WeakValueDictionary()


def _module(
    spec: ModelSpec, precision: str, where: Where, quantize: Quantizer | None, world: World | None
) -> torch.nn.Module:
    """The model in a precision on the device, or this rank's part of it.

    Sessions that are open at the same time share one: it is only read.
    """
    key = (repr(spec), precision, where, quantize, world)  # a spec holds mappings, so it has no hash
    if (module := _modules.get(key)) is None:
        whole = export.torch_module(spec, attention="sdpa")
        module = _cast(torch_ranks.divided(whole, spec, world) if world else whole, precision).to(where)
        if quantize:
            torch_quantize.quantize(module, quantize)
        _modules[key] = module
    return module


def _stream(device: Device) -> torch.cuda.ExternalStream | None:
    """The device's stream as torch's; None on the CPU."""
    import torch

    return torch.cuda.ExternalStream(device.stream) if device.stream is not None else None


@contextlib.contextmanager
def _reported(*failures: type[Exception]) -> Iterator[None]:
    """Turn these exceptions of torch's into CaseFailed in its words."""
    try:
        yield
    except failures as error:
        raise CaseFailed(f"torch: {' '.join(str(error).split())}") from None


@contextlib.contextmanager
def _opened(
    request: OpenRequest, wrap: Callable[[torch.nn.Module], Callable[..., torch.Tensor]]
) -> Iterator[TorchSession]:
    """The Session over the model in the case's precision; `wrap` makes what is called of it."""
    import torch

    device = request.device
    torch_source.set_tf32(request.variant.flag("tf32"))
    if device.where == "cpu":
        torch.set_num_threads(request.threads)
    world = torch_ranks.world_of(request)
    with (
        _reported(torch.OutOfMemoryError),
        torch_ranks.group(request.rank, device),
        torch.cuda.stream(_stream(device)),
    ):
        quantizer = torch_quantize.asked(request.variant)
        module = _module(request.spec, request.precision, device.where, quantizer, world)
        graph = device.where == "cuda" and request.variant.flag("cuda_graph")
        torch_options.apply(request.variant)
        weights = torch_quantize.size(module)
        call = wrap(torch_options.formatted(module := torch_options.stepped(module, request), request.variant))
        session = TorchSession(call, request.spec, device, graph=graph, weights=weights)
        session.operation = torch_options.operation(module, weights)
        try:
            with triton_tuning.tuned(request.variant, request.remembered) as session.tuning, torch.inference_mode():
                yield session
        finally:
            session.close()


def open_eager(request: OpenRequest) -> contextlib.AbstractContextManager[TorchSession]:
    """The torch model, operator by operator. Raises UserError for graphs that cannot be."""
    torch_graphs.Plan.of(request.variant, request.shape, trees=False)
    return _opened(request, lambda module: module)


@contextlib.contextmanager
def open_compile(request: OpenRequest) -> Iterator[TorchSession]:
    """The torch model through torch.compile, for exactly this shape; it compiles at the first run.

    Where `graphs` of several shapes are asked for, sizes are symbols, so that one compilation serves all of them.
    Raises CaseFailed where the model cannot be compiled.
    """
    mode = request.variant.text("compile_mode", inductor.DEFAULT_MODE)
    plan = torch_graphs.Plan.of(request.variant, request.shape, trees=True)
    if plan and mode == inductor.DEFAULT_MODE:
        raise UserError(
            f"graphs: compile_mode {mode} makes none; take one of {', '.join(inductor.COMPILE_MODES[1:])}"
        )
    import torch
    from torch._dynamo.exc import TorchDynamoException

    def compiled(module: torch.nn.Module) -> Callable[..., torch.Tensor]:
        call: Callable[..., torch.Tensor] = torch.compile(module, mode=mode, dynamic=plan is not None)
        if mode == inductor.DEFAULT_MODE:
            return call

        def step(*inputs: torch.Tensor) -> torch.Tensor:
            # Its CUDA graphs reuse the results' memory: this says that those of the last run are done with.
            torch.compiler.cudagraph_mark_step_begin()
            return call(*inputs)

        return step

    helped = inductor.no_helpers_for_what_is_compiled(request)
    with _reported(TorchDynamoException), helped, _opened(request, compiled) as session:
        yield session


def refuses_options(variant: Variant, case: Case, machine: Machine) -> str | None:
    """What speaks against a variant's options on this machine."""
    graphs = torch_graphs.refuses(variant, Shape.parse(case.shape), machine)
    ranks = worlds.refuses(variant, Shape.parse(case.shape), machine)
    return torch_quantize.refuses_variant(variant, case, machine) or graphs or ranks


def graph_memory(session: Session, request: OpenRequest, *, trees: bool) -> dict[str, Any] | None:
    """The part `graphs` of the record's memory; None where the variant does not ask for it."""
    plan = torch_graphs.Plan.of(request.variant, request.shape, trees=trees)
    if plan is None:
        return None
    if request.device.where == "cpu":
        return {"not_measured": torch_graphs.NO_GPU}
    assert isinstance(session, TorchSession)
    return session.graphs(request, plan)


def tuning_of(session: Session) -> list[dict[str, Any]]:
    """The part `tuning` of the record."""
    assert isinstance(session, TorchSession)
    return session.tuning.record()


def refuses_eager(case: Case, machine: Machine) -> str | None:
    """Only a missing torch is refused: precisions are a list of the backend."""
    return refusals.not_installed(machine, "torch")


def refuses_compile(case: Case, machine: Machine) -> str | None:
    """torch.compile needs a C++ compiler at run time; on a CPU it works, but a study would take hours."""
    compiler = any(shutil.which(name) for name in COMPILERS)
    return refusals.first(
        refuses_eager(case, machine),
        "no GPU: on the CPU it compiles for about a minute a case" if machine.gpu is None else None,
        None if compiler else f"torch.compile needs a C++ compiler; install one of {', '.join(COMPILERS)}",
    )


OPTIONS = {**RUN, **THREADS, **TF32, **torch_quantize.OPTION, **triton_tuning.OPTION, **torch_graphs.OPTIONS}
TORCH_EAGER = Backend(
    name="torch_eager",
    title="PyTorch, eager",
    where="any",
    artifact="torch",
    open=open_eager,
    refuses=refuses_eager,
    options={**OPTIONS, **torch_ranks.OPTION},
    precisions=frozenset(DTYPES),
    imports=(*export.IMPORTS, "torch.distributed"),
    refuses_variant=refuses_options,
    graph_memory=functools.partial(graph_memory, trees=False),
    tuning=tuning_of,
    operation=torch_options.operation_of,
)

TORCH_COMPILE = Backend(
    name="torch_compile",
    title="PyTorch, torch.compile",
    where="any",
    artifact="torch",
    open=open_compile,
    refuses=refuses_compile,
    options={
        "compile_mode": Option(
            f"the mode of torch.compile: {', '.join(f'`{mode}`' for mode in inductor.COMPILE_MODES)}",
            one_of(*inductor.COMPILE_MODES),
        ),
        **some(OPTIONS, "placement", "threads", "host_cast", "tf32", "quantize", "tuning", "graphs"),
    },
    precisions=frozenset(DTYPES),
    compiles_ahead=inductor.compiles_ahead,
    forget_choices=inductor.forget_choices,
    compile_cache=inductor.cache,
    imports=(*export.IMPORTS, "torch._inductor.compile_fx"),
    alone=inductor.graphs_share_memory,
    refuses_variant=refuses_options,
    graph_memory=functools.partial(graph_memory, trees=True),
    tuning=tuning_of,
    operation=torch_options.operation_of,
)
