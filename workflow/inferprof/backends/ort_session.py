"""One ONNX Runtime session on buffers with fixed addresses, whichever execution provider runs it."""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from inferprof.backends import ort_options, ort_told
from inferprof.device import Buffer, Device
from inferprof.errors import CaseFailed
from inferprof.machine.hardware import parse_version
from inferprof.plugins import OpenRequest

if TYPE_CHECKING:
    import onnxruntime

Provider = tuple[str, dict[str, str]]
"""An execution provider and its options, which are text in every language binding."""

GRAPH_IDS = ("gpu_graph_id", "cuda_graph_annotation_id")
"""The run option that names a graph: as ONNX Runtime has it, and as the plug-in of TensorRT-RTX has it."""
NO_GRAPH = -1
"""ONNX Runtime's id for a run that is neither captured nor replayed."""
RUNS_UNTIL_GRAPH = 3
"""The CUDA and TensorRT EPs run twice, then capture, and replay from then on."""

DTYPES = {
    f"tensor({name})": np.dtype(dtype)
    for name, dtype in {
        "float": np.float32,
        "double": np.float64,
        **{t: t for t in ("float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
        "bool": np.bool_,
    }.items()
}
"""NumPy's types, by ONNX Runtime's names for them."""
_Bound = dict[str, tuple[int, tuple[int, ...]]]
"""Input → its address and shape."""


class OrtSession:
    """Implements plugins.Session by IO binding: no copy and no allocation of results happens in `enqueue`.

    `on_stream` says that the session computes on `device.stream`. Then a run returns before the device is done;
    otherwise it must wait, before for its inputs and after for its outputs.
    """

    def __init__(self, session: Any, device: Device, *, on_stream: bool, graph: bool) -> None:
        self._session = session
        self._device = device
        self._graph = graph
        self._outputs: dict[str, Buffer] = {}
        self._bound: _Bound = {}
        self._captured = False
        self._declared = False
        """Whether the outputs' memory is as the file declares them, and no run has proved it yet."""
        self._misdeclared = False
        """Whether the file declares outputs in another shape than it gives."""
        self._binding = session.io_binding()
        self._on_stream = on_stream
        self._waits_for_inputs = device.where == "cuda" and not on_stream
        self._graph_id = 0
        self._run_options = self._options(NO_GRAPH)

    def bind(self, inputs: Mapping[str, Buffer]) -> None:
        """Fix the addresses of inputs and outputs.

        The outputs' sizes follow from the inputs' by the graph's symbols; where they do not (a symbol of the
        outputs alone), one inference runs here to learn them, again only where an input's shape changes. Where the
        file declares other sizes than it gives, the first inference learns them.
        """
        bound = {name: (buffer.ptr, buffer.shape) for name, buffer in inputs.items()}
        if self._captured and bound == self._bound:
            return  # the graph reads these addresses already
        for name, buffer in inputs.items():
            self._binding.bind_input(name, buffer.where, 0, buffer.dtype.type, buffer.shape, buffer.ptr)
        if bound != self._bound:
            if _shapes(bound) != _shapes(self._bound):
                self._bind_outputs(inputs)
            self._bound, self._captured = bound, False
            # A graph holds the addresses that it was captured with: other addresses need another graph.
            self._graph_id += 1
            self._run_options = self._options(self._graph_id)

    def _bind_outputs(self, inputs: Mapping[str, Buffer]) -> None:
        """Give each output memory, which stays the same while its shape does."""
        dtypes = {node.name: dtype_of(node) for node in self._session.get_outputs()}
        declared = self._declared_shapes(inputs)
        shapes = declared or self._probed_shapes()
        self._declared, self._misdeclared = declared is not None or not self._graph, False
        self._binding.clear_binding_outputs()
        for name, dtype in dtypes.items():
            buffer = self._output_buffer(name, shapes[name], dtype)
            self._binding.bind_output(name, buffer.where, 0, buffer.dtype.type, buffer.shape, buffer.ptr)

    def _declared_shapes(self, inputs: Mapping[str, Buffer]) -> dict[str, tuple[int, ...]] | None:
        """The outputs' shapes with the inputs' symbols replaced; None where a symbol stays unknown."""
        input_shapes = [
            (node.shape, inputs[node.name].shape) for node in self._session.get_inputs() if node.name in inputs
        ]
        pairs = [pair for dims, sizes in input_shapes for pair in zip(dims, sizes, strict=True)]
        symbols = {dim: size for dim, size in pairs if isinstance(dim, str)}  # a dimension without a name is None
        shapes = {node.name: node.shape for node in self._session.get_outputs()}
        if any(not isinstance(dim, int) and dim not in symbols for dims in shapes.values() for dim in dims):
            return None
        return {name: tuple(d if isinstance(d, int) else symbols[d] for d in dims) for name, dims in shapes.items()}

    def _probed_shapes(self) -> dict[str, tuple[int, ...]]:
        """The outputs' shapes as one inference gives them."""
        names = self._bind_to_device()
        self._run(self._options(NO_GRAPH))
        return {name: tuple(value.shape()) for name, value in zip(names, self._binding.get_outputs(), strict=True)}

    def _output_buffer(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Buffer:
        """The output's buffer; the same one again while its shape stays."""
        buffer = self._outputs.get(name)
        if buffer is None or buffer.shape != shape:
            self._outputs[name] = self._device.allocate(shape, dtype)
        return self._outputs[name]

    def _options(self, graph_id: int) -> onnxruntime.RunOptions:
        import onnxruntime

        options = onnxruntime.RunOptions()
        options.log_severity_level = ort_told.WARNING  # a session that was asked for its reasons would log each run
        if self._on_stream:
            options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        if self._graph:
            for name in GRAPH_IDS:
                options.add_run_config_entry(name, str(graph_id))
        return options

    def enqueue(self) -> None:
        """Run once. Raises CaseFailed in ONNX Runtime's words."""
        if self._waits_for_inputs:
            self._device.synchronize()
        if self._misdeclared:
            self._bind_to_device()
        try:
            self._run(self._run_options)
        except CaseFailed as error:
            if not self._declared or self._graph:
                raise
            self._run_misdeclared(error)
        self._declared = False

    def _run_misdeclared(self, error: CaseFailed) -> None:
        """Run with outputs that ONNX Runtime allocates itself: where the file declares them in another shape than it
        gives, it only warns then, and refuses any memory that is bound. Raises `error`, of the run before, where that
        is not why."""
        self._bind_to_device()
        try:
            self._run(self._run_options)
        except CaseFailed:
            raise error from None
        self._misdeclared = True

    def _bind_to_device(self) -> list[str]:
        """Have the next run allocate the outputs, whose names it gives."""
        names = [node.name for node in self._session.get_outputs()]
        self._binding.clear_binding_outputs()
        for name in names:
            self._binding.bind_output(name, self._device.where)
        return names

    def _run(self, options: onnxruntime.RunOptions) -> None:
        try:
            self._session.run_with_iobinding(self._binding, options)
        except RuntimeError as error:  # this call raises no exception of ONNX Runtime's own
            raise _failed(error) from None

    def outputs(self) -> dict[str, Buffer]:
        """The buffers of `bind`, or where ONNX Runtime has put the results of the last run."""
        return self._allocated() if self._misdeclared else dict(self._outputs)

    def _allocated(self) -> dict[str, Buffer]:
        outputs = zip(self._session.get_outputs(), self._binding.get_outputs(), strict=True)
        return {node.name: self._held(value, dtype_of(node)) for node, value in outputs}

    def _held(self, value: Any, dtype: np.dtype[Any]) -> Buffer:
        """An OrtValue as a buffer."""
        shape, address, on_gpu = tuple(value.shape()), value.data_ptr(), self._device.where == "cuda"
        size = math.prod(shape) * dtype.itemsize
        held = None if on_gpu else (ctypes.c_char * size).from_address(address)
        array = None if held is None else np.frombuffer(held, dtype).reshape(shape)
        return Buffer(self._device.where, address, shape, dtype, value, array)

    def capture_graph(self) -> bool:
        """Run until the provider replays its own graph; False where the variant does not ask for one."""
        if self._graph:
            for _ in range(RUNS_UNTIL_GRAPH):
                self.enqueue()
            self._device.synchronize()
            self._captured = True
        return self._graph

    def memory(self) -> dict[str, int]:
        """Nothing: ONNX Runtime's Python binding does not tell the size of its arenas."""
        return {}

    def close(self) -> None:
        """Drop the session, which frees its arenas once nothing else holds it."""
        self._device.synchronize()
        del self._binding, self._session
        self._outputs.clear()


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """Turn ONNX Runtime's exceptions into CaseFailed with its message; they share no base class but Exception."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    errors = tuple(t for t in vars(state).values() if isinstance(t, type) and issubclass(t, Exception))
    try:
        yield
    except errors as error:
        raise _failed(error) from None


def _failed(error: Exception) -> CaseFailed:
    return CaseFailed(f"ONNX Runtime: {' '.join(str(error).split())}")


def _shapes(bound: _Bound) -> dict[str, tuple[int, ...]]:
    return {name: shape for name, (_, shape) in bound.items()}


def dtype_of(node: Any) -> np.dtype[Any]:
    """The NumPy type of an input or output. Raises CaseFailed for one that has none, as bfloat16 or a sequence."""
    if not node.type.startswith("tensor("):
        zipped = " (skl2onnx: options={'zipmap': False})" if "map(" in node.type else ""
        raise CaseFailed(f"{node.name} is a {node.type} and no tensor; export the graph without it{zipped}")
    if node.type not in DTYPES:
        raise CaseFailed(f"{node.name} is a {node.type}, which has no NumPy type; cast it to float in the graph")
    return DTYPES[node.type]


def version() -> tuple[int, ...]:
    """The version of ONNX Runtime, as integers."""
    import onnxruntime

    return parse_version(onnxruntime.__version__)


def preload_cuda() -> None:
    """Load the CUDA libraries that came with torch, which the loader does not find by itself."""
    import onnxruntime

    if hasattr(onnxruntime, "preload_dlls"):  # 1.21 and newer
        with contextlib.redirect_stdout(sys.stderr):
            onnxruntime.preload_dlls()


def session_options(request: OpenRequest) -> onnxruntime.SessionOptions:
    """Threads, and the native profile where it is asked for."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = request.threads
    ort_options.apply(options, request.variant)
    if request.native_profile:
        ort_told.ask(options, request.native_profile)
    return options


def create(model: Path | bytes, options: onnxruntime.SessionOptions, providers: Sequence[Provider]) -> Any:
    """An InferenceSession on the first of `providers`. Raises CaseFailed where it fell back to another one.

    ONNX Runtime itself only logs a provider whose libraries cannot be loaded, and goes on, on the CPU.
    """
    import onnxruntime

    graph = model if isinstance(model, bytes) else str(model)
    with reported(), ort_told.heard(options):
        session = onnxruntime.InferenceSession(graph, options, providers=list(providers), enable_fallback=0)
    return _on(session, providers[0][0])


def on_devices(model: Path, options: onnxruntime.SessionOptions, provider: str) -> Any:
    """An InferenceSession on the plug-in that `options` name, with the same promise as `create`."""
    import onnxruntime

    with reported(), ort_told.heard(options):
        session = onnxruntime.InferenceSession(str(model), options, enable_fallback=0)
    return _on(session, provider)


def _on(session: Any, wanted: str) -> Any:
    if wanted not in session.get_providers():
        raise CaseFailed(
            f"ONNX Runtime could not load {wanted} and fell back to {', '.join(session.get_providers())}; "
            "its reason is in the log (often a CUDA, cuDNN or TensorRT library that is missing)"
        )
    return session


@contextlib.contextmanager
def opened(request: OpenRequest, session: Any, *, on_stream: bool = True) -> Iterator[OrtSession]:
    """The Session over an InferenceSession; writes the native profile at the end.

    What ONNX Runtime raises in the meantime leaves this block as CaseFailed.
    """
    cuda = request.device.where == "cuda"
    graph = cuda and request.variant.flag("cuda_graph")
    wrapped = OrtSession(session, request.device, on_stream=cuda and on_stream, graph=graph)
    try:
        with reported():
            yield wrapped
    finally:
        wrapped.close()
        if request.native_profile:
            ort_told.keep(session, request.native_profile)
