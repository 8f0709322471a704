"""Reads what TensorRT says of an engine's layers: EngineInspector's JSON, and the times of IProfiler and trtexec.

Layers: EngineInspector in JSON, which `trtexec --exportLayerInfo` writes too; of an engine that was built with
profiling verbosity LAYER_NAMES_ONLY it is a list of names. Times: `trtexec --exportProfile`, or an IProfiler's times
as a dictionary (layer → list of ms); and `trtexec --exportTimes`, which is about inferences, not layers.
Checked against files of TensorRT 8.4, 8.5, 10.1 and 10.x (LayerType kgen, gemm, fusion) and on TensorRT 7, which is
refused: it appends one document per run, and has no medians.
"""

from __future__ import annotations

import contextlib
import json
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from inferprof.errors import UserError
from inferprof.files import opened

Kind = Literal["layers", "profile", "iprofiler", "times"]
NS_PER_MS: Final = 1e6
PROFILE, GRAPH = ".profile.json", ".graph.json"
"""What TensorRT's engine explorer calls the files of --exportProfile and --exportLayerInfo of one engine."""
TOO_OLD: Final = "was written by TensorRT 8.2 or older; export it again with TensorRT 8.4 or newer"

_ONNX_NODE: Final = re.compile(r"\[ONNX Layer: (.*?)\](?=[\x1e\x1f]|\[ONNX Layer: |$)")
"""Records of Metadata, apart by the separators \\x1e and \\x1f: `[ONNX Layer: a]\\x1e[ONNX Layer: b]`."""
_DTYPES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (dtype, re.compile(pattern, re.IGNORECASE))
    for dtype, pattern in (
        ("bf16", r"bf16|bfloat16"),
        ("fp16", r"fp16|\bhalf\b"),
        ("e8m0", r"e8m0"),
        ("fp8", r"fp8|e4m3|e5m2|float8"),
        ("fp4", r"fp4|e2m1|float4"),
        ("int8", r"(?<!u)int8"),
        ("uint8", r"uint8"),
        ("int4", r"int4"),
        ("int32", r"int32"),
        ("int64", r"int64"),
        ("bool", r"bool"),
        ("fp32", r"fp32|\bfloat\b"),
    )
)
"""The number formats in `Format/Datatype` and in `Weights`: in words up to TensorRT 10.1 ("Row major linear FP32"),
and by name alone behind it and inside Myelin ("Half")."""


@dataclass(frozen=True)
class Tensor:
    """An input or output of a layer. `dtype` and `layout` are None where the file does not tell them."""

    name: str
    dims: tuple[int, ...]
    dtype: str | None
    layout: str | None


@dataclass(frozen=True)
class Layer:
    """One layer of an engine. What a file of names alone does not tell is None or empty."""

    name: str
    kind: str | None = None
    """LayerType: CaskConvolution, Reformat, Myelin, kgen, gemm …"""
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    nodes: tuple[str, ...] = ()
    """ONNX nodes that it came from, by its metadata; TensorRT before 9 has none."""
    tactic: str | None = None
    weights: str | None = None
    """Number format of its weights."""
    origin: str | None = None
    """Why a reformat is there: REFORMAT, QDQ …"""
    sparse: bool | None = None
    """Whether its kernel uses 2:4 sparse weights; None where it has none or is of a kind that does not tell."""


@dataclass(frozen=True)
class LayerTime:
    """Times of one layer over `count` inferences, in ns. `shortest` and `longest` only where each one is known."""

    name: str
    count: int
    total: float
    mean: float
    median: float
    shortest: float | None = None
    longest: float | None = None


# --- files -----------------------------------------------------------------------------------------------------


def graph_of(profile: Path) -> Path:
    """`x.profile.json`, `x.json` → `x.graph.json`: the layers that the times are of."""
    return profile.with_name(profile.name.removesuffix(".json").removesuffix(".profile") + GRAPH)


def profile_rows(times_ms: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """Times of each layer in ms, by inference, as `trtexec --exportProfile` writes them."""
    count = max((len(times) for times in times_ms.values()), default=0)
    whole = sum(map(sum, times_ms.values()))
    rows = [
        {
            "name": name,
            "timeMs": sum(times),
            "averageMs": sum(times) / count,
            "medianMs": statistics.median(times),
            "percentage": 100 * sum(times) / whole if whole else 0.0,
        }
        for name, times in times_ms.items()
    ]
    return [{"count": count}, *rows]


def kind_of(path: Path, content: Any) -> Kind:
    """Which of the four files it is. Raises UserError for any other JSON."""
    first = content[0] if isinstance(content, list) and content else None
    if isinstance(content, dict) and "Layers" in content:
        return "layers"
    if isinstance(first, dict) and set(first) == {"count"}:
        return "profile"
    if isinstance(first, dict) and "computeMs" in first:
        return "times"
    if isinstance(content, dict) and content and all(_is_numbers(value) for value in content.values()):
        return "iprofiler"
    raise UserError(
        f"{path} is not about TensorRT's layers: give what trtexec writes with --exportLayerInfo, --exportProfile or "
        "--exportTimes, EngineInspector's JSON, or a dictionary of layers and their times in ms"
    )


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, int | float) for item in value)


def load(path: Path) -> Any:
    """The one JSON document of a file, plain or gzip. Raises UserError where it is cut short or holds several."""
    try:
        with opened(path) as file:
            text = file.read().decode("utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (EOFError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is cut short or damaged ({error}): export it again") from None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            raise UserError(f"{path} holds several documents, one run appended to the other: it {TOO_OLD}") from None
        raise UserError(f"{path} is not whole JSON ({error}): the run that wrote it was cut short") from None


def read_layers(path: Path, content: Any) -> tuple[Layer, ...]:
    """An engine's layers in the order in which they run. Raises UserError where the file lists none."""
    with _complete(path):
        layers = tuple(_layer(item) for item in content["Layers"])
    if not layers:
        raise UserError(f"{path} lists no layer: the engine was built with profiling verbosity NONE")
    return layers


def read_times(path: Path, content: Any) -> tuple[LayerTime, ...]:
    """Times of layers, in the file's order, out of a file of the kind profile or iprofiler."""
    if kind_of(path, content) == "iprofiler":
        return tuple(_measured(name, times) for name, times in content.items())
    head, *rows = content
    if any("medianMs" not in row for row in rows):
        raise UserError(f"{path} lacks medianMs: it {TOO_OLD}")
    with _complete(path):
        return tuple(_reported(row, int(head["count"])) for row in rows)


def inferences(path: Path, content: Sequence[Mapping[str, float]]) -> dict[str, np.ndarray]:
    """Per stage of an inference (h2d, compute, d2h, enqueue, latency) its durations in ns, from --exportTimes."""
    if "startH2dMs" not in content[0]:
        raise UserError(f"{path} lacks startH2dMs: it {TOO_OLD}")
    with _complete(path):
        columns = {name: np.array([row[name] for row in content], float) for name in content[0]}
        stages = {stage: columns[f"{stage}Ms"] for stage in ("h2d", "compute", "d2h", "latency")}
        stages["enqueue"] = columns["endEnqMs"] - columns["startEnqMs"]
    return {stage: values * NS_PER_MS for stage, values in stages.items()}


@contextlib.contextmanager
def _complete(path: Path) -> Iterator[None]:
    """Turn what a file of the right kind lacks into one line."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path} is not as TensorRT writes it ({type(error).__name__}: {error}): was it edited, or put together?"
        ) from None


# --- layers ----------------------------------------------------------------------------------------------------


def _layer(item: Any) -> Layer:
    if isinstance(item, str):
        return Layer(item)
    sparse = item.get("HasSparseWeights")
    return Layer(
        name=item["Name"],
        kind=item.get("LayerType"),
        inputs=tuple(_tensor(tensor) for tensor in item.get("Inputs", ())),
        outputs=tuple(_tensor(tensor) for tensor in item.get("Outputs", ())),
        nodes=onnx_nodes(item.get("Metadata", "")),
        tactic=item.get("TacticName") or None,
        weights=dtype_of(item["Weights"]["Type"]) if item.get("Weights") else None,
        origin=item.get("Origin"),
        sparse=None if sparse is None else bool(sparse),
    )


def _tensor(item: Mapping[str, Any]) -> Tensor:
    layout = item.get("Format/Datatype")
    told = layout if layout and not layout.startswith("N/A") else None
    return Tensor(item["Name"], tuple(item["Dimensions"]), dtype_of(told or ""), told)


def onnx_nodes(metadata: str) -> tuple[str, ...]:
    """`[ONNX Layer: a]\\x1e[ONNX Layer: b]` → a, b; each once."""
    return tuple(dict.fromkeys(_ONNX_NODE.findall(metadata)))


def dtype_of(words: str) -> str | None:
    """`Channel major FP16 format where channel % 8 == 0` → fp16; None where no number format is named."""
    return next((dtype for dtype, pattern in _DTYPES if pattern.search(words)), None)


# --- times -----------------------------------------------------------------------------------------------------


def _reported(row: Mapping[str, Any], count: int) -> LayerTime:
    total, mean, median = (float(row[key]) * NS_PER_MS for key in ("timeMs", "averageMs", "medianMs"))
    return LayerTime(str(row["name"]), count, total, mean, median)


def _measured(name: str, times_ms: Sequence[float]) -> LayerTime:
    times = np.array(times_ms, float) * NS_PER_MS
    spread = (float(times.min()), float(times.max()))
    return LayerTime(name, times.size, float(times.sum()), float(times.mean()), float(np.median(times)), *spread)
