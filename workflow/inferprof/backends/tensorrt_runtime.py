"""Running engines of TensorRT and TensorRT-RTX: one Session for 8.5 and everything since."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from inferprof.device import Buffer, Device
from inferprof.errors import CaseFailed, UserError
from inferprof.files import write_json, write_text
from inferprof.readers import trt_json, trt_listing

Flavour = Literal["tensorrt", "tensorrt_rtx"]
DTYPES: dict[str, np.dtype[Any]] = {
    "FLOAT": np.dtype(np.float32),
    "HALF": np.dtype(np.float16),
    "INT8": np.dtype(np.int8),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "UINT8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}
"""NumPy's types by TensorRT's names; `tensorrt.nptype` of 8.5 fails beside NumPy 1.24 and newer."""
SPARSITY = "(Sparsity) "
"""How TensorRT begins what it says of sparse weights."""
LOGGER = logging.getLogger("inferprof.tensorrt")


class MessageLog(Protocol):
    """What TensorRT said, by severity."""

    errors: list[str]
    warnings: list[str]
    sparsity: list[str]
    """What it said of sparse weights while it built, at any severity."""
    layers: str
    """What it listed when the engine was done; empty where it lists none."""


def load(flavour: Flavour) -> Any:
    """The Python module of a flavour. Raises UserError where it is not installed."""
    try:
        return importlib.import_module(flavour)
    except ImportError as error:
        raise UserError(f"{flavour} cannot be imported ({error}); install it, or choose another backend") from None


def message_log(trt: Any, *, aloud: bool = True) -> Any:
    """A logger that keeps TensorRT's messages, since its calls only return None where they fail.

    Aloud they are said in the log, too; not where they are the answer to a question.
    """
    said = LOGGER.log if aloud else (lambda *_: None)

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []
            self.warnings: list[str] = []
            self.sparsity: list[str] = []
            self.layers = ""

        def log(self, severity: Any, message: str) -> None:
            text = " ".join(message.split())
            if severity in (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR):
                self.errors.append(text)
                said(logging.ERROR, text)
            elif severity == trt.ILogger.WARNING:
                self.warnings.append(text)
                said(logging.WARNING, text)
            elif text.startswith(SPARSITY):
                self.sparsity.append(text)
            elif text.startswith(trt_listing.HEADING):
                self.layers = message

    return Log()


def deserialized(path: Path, trt: Any, log: MessageLog) -> Any:
    """The engine of a file.

    Raises CaseFailed, in TensorRT's words, where it is broken, or of another GPU or TensorRT version.
    """
    runtime = trt.Runtime(log)
    if hasattr(runtime, "engine_host_code_allowed"):
        # Version-compatible engines carry their own runtime; they are our own builds.
        runtime.engine_host_code_allowed = True
    engine = runtime.deserialize_cuda_engine(path.read_bytes())
    if engine is None:
        raise CaseFailed(
            f"TensorRT {trt.__version__} refuses {path.name}: {'; '.join(log.errors) or 'no reason given'}"
        )
    return engine


def outside_profile(engine: Any, shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """Why these input shapes are not ones that the engine was built for, or None.

    Asked before binding: TensorRT itself reports it only once an inference is queued, and then on every one.
    """
    for name, shape in shapes.items():
        dims = tuple(engine.get_tensor_shape(name))
        low, high = dims, dims
        if -1 in dims:
            low, _, high = map(tuple, engine.get_tensor_profile_shape(name, 0))
        if len(shape) != len(low) or not all(a <= size <= b for a, size, b in zip(low, shape, high, strict=False)):
            return (
                f"input {name} of shape {shape} is outside of the engine's profile, {low} to {high}; "
                "build an engine for this shape, or list it in the variant's profile:"
            )
    return None


class TensorRTSession:
    """Implements plugins.Session over one execution context."""

    def __init__(self, trt: Any, engine: Any, log: MessageLog, device: Device, *, graph: bool) -> None:
        self._trt = trt
        self._engine = engine
        self._log = log
        self._device = device
        self._graph = graph
        self._context = engine.create_execution_context()
        if self._context is None:
            raise self._failed("cannot create an execution context")
        for name in self._names("INPUT"):
            if engine.get_tensor_location(name) == trt.TensorLocation.HOST:
                raise CaseFailed(f"input {name} decides shapes, so TensorRT reads it on the host: not supported")
        self._outputs: dict[str, Buffer] = {}
        self._bound: dict[str, tuple[int, tuple[int, ...]]] = {}
        self._captured = False
        self._launch: Callable[[], None] = self._execute

    @property
    def engine(self) -> Any:
        """TensorRT's engine."""
        return self._engine

    @property
    def context(self) -> Any:
        """TensorRT's execution context."""
        return self._context

    def bind(self, inputs: Mapping[str, Buffer]) -> None:
        """Set shapes and addresses, and allocate the outputs, whose shapes follow from them."""
        bound = {name: (buffer.ptr, buffer.shape) for name, buffer in inputs.items()}
        if self._captured and bound == self._bound:
            return  # the graph reads these addresses already
        for name, buffer in inputs.items():
            if not self._context.set_input_shape(name, buffer.shape):
                raise self._failed(f"refuses shape {buffer.shape} of input {name}")
            self._context.set_tensor_address(name, buffer.ptr)
        if bound != self._bound:
            self._bind_outputs()
            self._launch, self._captured, self._bound = self._execute, False, bound

    def _bind_outputs(self) -> None:
        """Give each output memory, which stays the same while its shape does."""
        for name in self._names("OUTPUT"):
            self._outputs[name] = self._output_buffer(name)
            self._context.set_tensor_address(name, self._outputs[name].ptr)

    def _names(self, mode: str) -> list[str]:
        names = [self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)]
        return [name for name in names if self._engine.get_tensor_mode(name).name == mode]

    def _output_buffer(self, name: str) -> Buffer:
        """The output's buffer; the same one again while its shape stays."""
        shape = tuple(self._context.get_tensor_shape(name))
        if -1 in shape:
            raise CaseFailed(f"the shape of output {name} depends on the data, {shape}: not supported")
        buffer = self._outputs.get(name)
        return buffer if buffer and buffer.shape == shape else self._device.allocate(shape, self._dtype(name))

    def _dtype(self, name: str) -> np.dtype[Any]:
        kind = self._engine.get_tensor_dtype(name).name
        if kind not in DTYPES:
            raise CaseFailed(f"output {name} is {kind}, which has no NumPy type; cast it to float in the graph")
        return DTYPES[kind]

    def enqueue(self) -> None:
        """Queue one inference. Raises CaseFailed with TensorRT's own words."""
        self._launch()

    def _execute(self) -> None:
        if not self._context.execute_async_v3(self._device.stream):
            raise self._failed("could not run")

    def outputs(self) -> dict[str, Buffer]:
        """The buffers of `bind`."""
        return dict(self._outputs)

    def capture_graph(self) -> bool:
        """Capture one inference into a CUDA graph; False where the variant does not ask for one."""
        if self._graph:
            self._launch, self._captured = self._device.capture(self._execute), True
        return self._graph

    def memory(self) -> dict[str, int]:
        """TensorRT's own sizes: scratch memory of the context and, from 10 on, the weights."""
        newer = hasattr(self._engine, "device_memory_size_v2")
        scratch = self._engine.device_memory_size_v2 if newer else self._engine.device_memory_size
        sizes = {"context_bytes": int(scratch)}
        if hasattr(self._engine, "get_engine_stat"):
            sizes["weights_bytes"] = int(self._engine.get_engine_stat(self._trt.EngineStat.TOTAL_WEIGHTS_SIZE))
        return sizes

    def close(self) -> None:
        """Release context and engine."""
        self._device.synchronize()
        self._launch = self._execute
        del self._context, self._engine
        self._outputs.clear()

    def _failed(self, what: str) -> CaseFailed:
        return CaseFailed(f"TensorRT {what}: {'; '.join(self._log.errors) or 'no reason given'}")


def layer_times(trt: Any) -> Any:
    """A profiler that keeps the times of each layer, in ms. Attached to a context, it makes runs wait."""

    class LayerTimes(trt.IProfiler):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)
            self.times_ms: dict[str, list[float]] = {}

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.times_ms.setdefault(layer_name, []).append(ms)

    return LayerTimes()


def write_profile(path: Path, trt: Any, session: TensorRTSession, times_ms: Mapping[str, list[float]]) -> None:
    """What trtexec exports: each layer's times at `path`, without the first inference, and the layers beside it.

    With the context the inspector tells formats and sizes of the shapes that ran; without it, of no dynamic ones.
    """
    inspector = session.engine.create_engine_inspector()
    inspector.execution_context = session.context
    write_text(trt_json.graph_of(path), inspector.get_engine_information(trt.LayerInformationFormat.JSON))
    settled = {name: times[1:] or times for name, times in times_ms.items()}
    write_json(path, trt_json.profile_rows(settled))
