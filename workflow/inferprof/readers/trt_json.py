"""Reads what TensorRT says of an engine's layers: EngineInspector's JSON, and the times of IProfiler and trtexec.

Layers: EngineInspector in JSON, which `trtexec --exportLayerInfo` writes too; of an engine that was built with
profiling verbosity LAYER_NAMES_ONLY it is a list of names. Layers that a program asked for one by one are read
too: in a list, or one document behind the other, perhaps with lines of text between them. Times: `trtexec
--exportProfile`, or an IProfiler's times as a dictionary (layer → list of ms); and `trtexec --exportTimes`, which is
about inferences, not layers.
Checked against files of TensorRT 7.1, 8.4, 8.5, 10.1 and 10.x (LayerType kgen, gemm, fusion). TensorRT 7 appends one
document per run (`documents`), and has no medians.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import operator
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from inferprof.errors import UserError, in_one_line
from inferprof.files import text_of
from inferprof.tables.nodes.trt_engine import Layer, LayerTime, Tensor, dtype_of
from inferprof.units import NS_PER_MS, NS_PER_US

Kind = Literal["layers", "profile", "iprofiler", "times"]
PROFILE, GRAPH = ".profile.json", ".graph.json"
"""What TensorRT's engine explorer calls the files of --exportProfile and --exportLayerInfo of one engine."""
OLDER_STAGES: Final[Mapping[str, str]] = {"startH2dMs": "startInMs", "h2dMs": "inMs", "d2hMs": "outMs"}
"""Keys of --exportTimes → what they were up to TensorRT 8.2."""

OFF: Final = 0.01
"""Ours: by what share of a layer's time its mean may miss it; files of TensorRT do by 0.00001."""
LONGEST_MS: Final = 1e12
"""30 years, which no run of an engine lasts."""
_BETWEEN: Final = re.compile(r"(?:[\s,]+|^[^\s{\[][^\n]*)*", re.MULTILINE)
"""Blanks, commas and lines of text in front of a document."""
_ONNX_NODE: Final = re.compile(r"\[ONNX Layer: (.*?)\](?=[\x1e\x1f]|\[ONNX Layer: |$)")
"""Records of Metadata, apart by the separators \\x1e and \\x1f: `[ONNX Layer: a]\\x1e[ONNX Layer: b]`."""


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


def _is_layer(item: Any) -> bool:
    return isinstance(item, dict) and "Name" in item and "LayerType" in item


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
    """The JSON document of a file, plain or gzip; of layers one by one, as if they had been exported together.

    Raises UserError where it is cut short or holds several of another kind.
    """
    every = documents(path)
    if len(every) == 1:
        return every[0]
    raise UserError(
        f"{path} holds several documents, one run appended to the other: give each in a file of its own, or ask "
        "`inferprof explain`"
    )


def documents(path: Path) -> list[Any]:
    """The JSON documents of a file, one run appended to the other; layers one by one are one document.

    Raises UserError where it is cut short.
    """
    try:
        every = _documents(text_of(path, errors="strict"))
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path} is not whole JSON ({in_one_line(error)}): the run that wrote it was cut short"
        ) from None
    layers = every[0] if len(every) == 1 and isinstance(every[0], list) else every
    return [{"Layers": layers}] if layers and all(map(_is_layer, layers)) else every


def _documents(text: str) -> list[Any]:
    """The documents of a text, between which others than JSON's marks may stand. Raises ValueError for half of one.

    TensorRT 8.6 writes the separators of Metadata as they are, which JSON has escaped.
    """
    decoder = json.JSONDecoder(strict=False, parse_constant=_not_finite)
    documents: list[Any] = []
    place = _next(text, 0)
    while place < len(text) or not documents:
        document, end = decoder.raw_decode(text, place)
        documents.append(document)
        place = _next(text, end)
        if place == len(text) and (left := text[end:].strip(" \t\r\n,")):
            raise ValueError(f"nothing behind {left[:40]!r}")
    return documents


def _next(text: str, end: int) -> int:
    """Where the document behind a place begins."""
    between = _BETWEEN.match(text, end)
    return between.end() if between else end


def _not_finite(word: str) -> float:
    raise ValueError(f"{word} is no number")


def read_layers(path: Path, content: Any) -> tuple[Layer, ...]:
    """An engine's layers in the order in which they run. Raises UserError where the file lists none."""
    with _complete(path):
        listed = content["Layers"] or []
        if not isinstance(listed, list):
            raise TypeError(f"its Layers are {type(listed).__name__}, no list")
        layers = tuple(_layer(item) for item in listed)
    if not layers:
        raise UserError(f"{path} lists no layer: the engine was built with profiling verbosity NONE")
    return layers


def read_times(path: Path, content: Any) -> tuple[LayerTime, ...]:
    """Times of layers, in the file's order, out of a file of the kind profile or iprofiler."""
    if kind_of(path, content) == "iprofiler":
        with _complete(path):
            return tuple(_measured(name, times) for name, times in content.items())
    head, *rows = content
    with _complete(path):
        count = _positive(head["count"])
        if any(row == before for before, row in itertools.pairwise(sorted(rows, key=lambda row: str(row["name"])))):
            raise ValueError("a layer is there twice")
        return tuple(_reported(row, count) for row in rows)


def inferences(path: Path, content: Sequence[Mapping[str, float]]) -> tuple[dict[str, np.ndarray], float | None]:
    """Per stage of an inference (h2d, compute, d2h, enqueue, latency) its durations in ns, from --exportTimes.

    And the ms from the first one's enqueuing to the last one's end, where rows have an end.
    """
    with _complete(path):
        columns = {name: _numbers([row[name] for row in content]) for name in content[0]}
        keys = {stage: f"{stage}Ms" for stage in ("h2d", "compute", "d2h", "latency")}
        if "startH2dMs" not in columns:
            keys = {stage: OLDER_STAGES.get(key, key) for stage, key in keys.items()}
        stages = {stage: _durations(columns[key]) for stage, key in keys.items()}
        stages["enqueue"] = _durations(columns["endEnqMs"] - columns["startEnqMs"])
        ends = [columns[key][-1] for key in ("endD2hMs", "endOutMs", "endComputeMs") if key in columns]
        span = float(max(ends) - columns["startEnqMs"][0]) if ends else None
    return {stage: values * NS_PER_MS for stage, values in stages.items()}, span


@contextlib.contextmanager
def _complete(path: Path) -> Iterator[None]:
    """Turn what a file of the right kind lacks into one line."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path} is not as TensorRT writes it ({type(error).__name__}: {in_one_line(error)}): was it edited, or "
            "put together?"
        ) from None


# --- layers ----------------------------------------------------------------------------------------------------


def _layer(item: Any) -> Layer:
    if isinstance(item, str):
        return Layer(item)
    sparse = item.get("HasSparseWeights")
    return Layer(
        name=_text(item["Name"]),
        kind=_text(item.get("LayerType") or "") or None,
        inputs=tuple(_tensor(tensor) for tensor in item.get("Inputs", ())),
        outputs=tuple(_tensor(tensor) for tensor in item.get("Outputs", ())),
        nodes=onnx_nodes(item.get("Metadata", "")),
        tactic=_text(item.get("TacticName") or "") or None,
        weights=dtype_of(item["Weights"]["Type"]) if item.get("Weights") else None,
        origin=_text(item.get("Origin") or "") or None,
        sparse=None if sparse is None else bool(sparse),
    )


def _text(value: Any) -> str:
    """The same. Raises TypeError where it is none."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _tensor(item: Mapping[str, Any]) -> Tensor:
    layout = item.get("Format/Datatype")
    tensor_format = layout if layout and not layout.startswith("N/A") else None
    dims = tuple(map(operator.index, item["Dimensions"]))
    return Tensor(_text(item["Name"]), dims, dtype_of(tensor_format or ""), tensor_format)


def onnx_nodes(metadata: str) -> tuple[str, ...]:
    """`[ONNX Layer: a]\\x1e[ONNX Layer: b]` → a, b; each once."""
    return tuple(dict.fromkeys(_ONNX_NODE.findall(metadata)))


# --- times -----------------------------------------------------------------------------------------------------


def _numbers(values: Sequence[Any]) -> np.ndarray:
    """The same. Raises TypeError where one is no number, as true and text are none."""
    if other := [value for value in values if isinstance(value, bool) or not isinstance(value, int | float)]:
        raise TypeError(f"{other[0]!r} is no number")
    return np.array(values, float)


def _durations(values: np.ndarray) -> np.ndarray:
    """The same, in ms. Raises ValueError where one is no duration."""
    plausible = (values >= 0) & (values <= LONGEST_MS)
    if not plausible.all():
        raise ValueError(f"{values[~plausible][0]} ms is no duration")
    return values


def _positive(count: Any) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ValueError(f"a count of {count}")
    return count


def _reported(row: Mapping[str, Any], count: int) -> LayerTime:
    keys = ("timeMs", "averageMs", *(("medianMs",) if "medianMs" in row else ()))  # none up to TensorRT 8.2
    total, mean, *median = (_durations(_numbers([row[key] for key in keys])) * NS_PER_MS).tolist()
    if abs(total - mean * count) > OFF * total + count * NS_PER_US:
        raise ValueError(f"{row['timeMs']} ms over {count} inferences are no {row['averageMs']} ms each")
    return LayerTime(_text(row["name"]), count, total, mean, *median)


def _measured(name: str, times_ms: Sequence[float]) -> LayerTime:
    times = _durations(_numbers(times_ms)) * NS_PER_MS
    spread = (float(times.min()), float(times.max()))
    return LayerTime(name, times.size, float(times.sum()), float(times.mean()), float(np.median(times)), *spread)
