"""In which number format each kernel computed, and what of its work only converts numbers.

A kernel's format is that of the tensor-core operations that ncu counted; else the one in its name; else that of its
layer's operands, of which the wider decides: a product of FP8 with FP16 is computed in FP16. A name that stands for
both 16-bit formats has that of all other products. Where nothing tells, it is NOT_TOLD. Of 8-bit floats ncu counts
all alike: whether they are scaled by blocks (MXFP8) is in the name, or E8M0 scales are among the layer's inputs;
where neither tells, both are said, unless the GPU has no block scales. Matrix products (products, convolutions,
attention) are told apart from the rest, since a number format is asked for on their account.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import pandas as pd

from inferprof.errors import UserError
from inferprof.tables.counters.kernel_roofline import TENSOR_OPS
from inferprof.tables.counters.ncu_choice import function_name
from inferprof.tables.nodes import trt_kernels, trt_layers
from inferprof.tables.nodes.trt_engine import Layer, Tensor
from inferprof.tables.trace.kernel_class import EITHER_FP8, FP8S, ONLY_SCALES, KernelClass, classify, own_name
from inferprof.tables.trace.kernel_compare import holds, of_iterations

MATRIX: Final[tuple[KernelClass, ...]] = ("gemm", "convolution", "attention")
NOT_TOLD: Final = "not told"
Conversion = Literal["quantize", "cast", "reformat"]
"""quantize: to and from integers or narrow floats with a scale; reformat: another layout of the same numbers."""

_BITS: Final = {
    **dict.fromkeys(("fp4", "int4"), 4),
    **dict.fromkeys(("fp8", "int8", "uint8"), 8),
    **dict.fromkeys(("fp16", "bf16"), 16),
    **dict.fromkeys(("fp32", "tf32", "int32"), 32),
    **dict.fromkeys(("fp64", "int64"), 64),
}
"""Width of a number."""
_VAGUE: Final[tuple[KernelClass, ...]] = ("elementwise", "other")
"""Classes of a name that tells little, where TensorRT's word for the layer tells more."""
_MATRIX_KINDS: Final[tuple[tuple[KernelClass, re.Pattern[str]], ...]] = (
    ("convolution", re.compile(r"conv|correlation", re.IGNORECASE)),
    ("gemm", re.compile(r"gemm|matmul|MatrixMultiply|FullyConnected", re.IGNORECASE)),
)
_TORCH_CAST: Final = re.compile(
    r"copy_kernel_cuda.*LoadWithCast|float(?:8|16|32)\w*_copy_kernel_cuda|gpu_kernel_impl<.*copy_kernel"
)
"""PyTorch's copies whose two ends differ in type; those that only move numbers say `nocast` since torch 2.0."""
_NO_BLOCK_SCALES: Final = re.compile(r"-sm(?:[78]\d|90)-")
"""In the slug of a machine: tensor cores before compute capability 10.0. A machine with a label does not tell."""
_EITHER_HALF: Final = re.compile(r"cudnn_generated\w*_f16_")
"""How cuDNN calls attention in FP16 and in BF16 alike: `…_sdpa_sm90_flash_fprop_wgmma_f16_…` ran in bfloat16."""
_HALVES: Final = ("fp16", "bf16")
_QUANTIZED: Final = frozenset({"int4", "int8", "fp4", "fp8"})
"""Formats that numbers get into and out of by a scale."""
_REGION: Final = re.compile(r"\{ForeignNode\[")
"""In the name of a layer that is a region of nodes, called by its first and its last."""
_REFORMAT: Final = re.compile(r"^Reformatting CopyNode ")
"""How TensorRT calls a layer that it inserts between two formats; behind it stands the layer that it is for."""
_OF_MYELIN: Final = ("__myl", "_gemm_mha")
"""How names begin that Myelin gives to layers for what they do; others are those of ONNX nodes."""
_DOT: Final = re.compile(r"^__myl\w*?_(?:[A-Z][a-z]+)*MulSum")
_SCALES: Final = "e8m0"
"""A type of scales alone, of which MXFP8 has one per block of 32 numbers."""
_CONVERTING: Final = ("Reformat", "NoOp")
"""What TensorRT calls a layer that only moves or converts."""


def executed(
    kernels: pd.DataFrame, layers: Sequence[Layer] = (), counted: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """The kernels with `kernel_class`, `matrix`, `dtype` (or NOT_TOLD), `source` of it and `conversion` (or missing).

    kernels: kernel, duration_ns, instances and, where it is known, layer. counted: kernel → format, by counters.
    """
    described = {layer.name: layer for layer in layers}
    owner = kernels.get("layer", pd.Series(None, index=kernels.index, dtype="str"))
    rows = [
        _told(str(kernel), described.get(layer, Layer(layer)) if isinstance(layer, str) else None, counted or {})
        for kernel, layer in zip(kernels["kernel"], owner, strict=True)
    ]
    formats = pd.DataFrame(
        rows, columns=["kernel_class", "matrix", "dtype", "source", "conversion"], index=kernels.index
    )
    return kernels.join(_with_half(kernels["kernel"], formats).astype({"matrix": bool}))


def _with_half(kernels: pd.Series[str], formats: pd.DataFrame) -> pd.DataFrame:
    """With the 16-bit format of kernels whose name does not tell which: that of all other products, if they have one
    in common, else NOT_TOLD."""
    either = kernels.map(lambda name: bool(_EITHER_HALF.match(str(name)))) & formats["source"].eq("name")
    halves = set(formats.loc[formats["matrix"] & ~either, "dtype"]) & set(_HALVES)
    which = next(iter(halves)) if len(halves) == 1 else NOT_TOLD
    return formats.assign(
        dtype=formats["dtype"].mask(either, which),
        source=formats["source"].mask(either, "others" if which in halves else None),
    )


def _told(
    kernel: str, layer: Layer | None, counted: Mapping[str, str]
) -> tuple[str, bool, str, str | None, Conversion | None]:
    work = _class_of(kernel, layer)
    matrix = work in MATRIX or holds_any(kernel, layer)
    sources = {
        "counters": counted.get(kernel),
        "name": None if layer and _named_by_nodes(kernel, layer) else classify(kernel).dtype,
        "layer": _of_layer(layer, matrix=matrix) if layer else None,
    }
    dtypes = {name: dtype for name, dtype in sources.items() if dtype}
    source = next(iter(dtypes), None)
    if source and dtypes[source] == EITHER_FP8:
        source = next((name for name, dtype in dtypes.items() if dtype in FP8S), source)
    dtype = dtypes[source] if source else None
    return work, matrix, dtype or NOT_TOLD, source, conversion(kernel, layer)


def _class_of(kernel: str, layer: Layer | None) -> KernelClass:
    """By the kernel's name; by what TensorRT calls its layer where that only converts, or the name tells little.

    Of a layer without a kernel the name is that of nodes, and says nothing where TensorRT tells the kind.
    """
    if layer is None:
        return classify(kernel).kernel_class
    if converts := conversion_of(layer):
        return "quantize" if converts == "quantize" else "reformat"
    if holds_any(kernel, layer):
        return "other"
    if _is_dot(layer):
        return "gemm"
    kernel_class = classify(layer.kind if layer.kind and _named_by_nodes(kernel, layer) else kernel).kernel_class
    if layer.kind is None:
        return kernel_class
    kinds = _MATRIX_KINDS if kernel_class in _VAGUE else ()
    return next((work for work, names in kinds if names.search(layer.kind)), kernel_class)


def _of_layer(layer: Layer, *, matrix: bool) -> str | None:
    """The format that a layer computes in: of a matrix product the wider of its operands', else its output's.

    Operands are the input and the weights, or where the layer holds no weights the first two inputs. What a region
    reads and writes says nothing of what ran inside.
    """
    if is_region(layer):
        return None
    if not matrix:
        return layer.outputs[0].dtype if layer.outputs else None
    if _is_dot(layer):
        return layer.weights  # what it reads may be cast before it is multiplied
    inputs = [tensor.dtype for tensor in layer.inputs if tensor.dtype != _SCALES and not _is_scalar(tensor)]
    operands = (*inputs[:1], layer.weights) if layer.weights else inputs[:2]
    widest = max((dtype for dtype in operands if dtype in _BITS), key=_BITS.__getitem__, default=None)
    if widest != "fp8":
        return widest
    return "mxfp8" if any(tensor.dtype == _SCALES for tensor in layer.inputs) else EITHER_FP8


def _is_scalar(tensor: Tensor) -> bool:
    """Factors of a product (alpha, a scale) are no operands."""
    return all(size == 1 for size in tensor.dims)


def _is_dot(layer: Layer) -> bool:
    """Whether Myelin computes a product of a row with weights as elementwise products and a sum."""
    return layer.weights is not None and bool(_DOT.match(layer.name))


def _named_by_nodes(kernel: str, layer: Layer) -> bool:
    """Whether what is called a kernel is a layer of which no kernel is known, and its name that of nodes."""
    return kernel == layer.name and not kernel.startswith(_OF_MYELIN)


def is_region(layer: Layer) -> bool:
    """Whether a layer is many nodes that run in several kernels, none of which it names."""
    return layer.kind == "Myelin" or bool(_REGION.match(layer.name))


def holds_any(kernel: str, layer: Layer | None) -> bool:
    """Whether it is a region of which no kernel is known: what runs inside is taken for products of any format."""
    return layer is not None and kernel == layer.name and is_region(layer)


def conversion_of(layer: Layer) -> Conversion | None:
    """What a layer does that no node computes; None where it computes something."""
    if layer.origin == "QDQ":
        return "quantize"
    if layer.kind in _CONVERTING or _REFORMAT.match(layer.name):
        return "cast" if _changes_format(layer) else "reformat"
    return "quantize" if ONLY_SCALES.match(layer.tactic or layer.name) and quantizes(layer) else None


def quantizes(layer: Layer) -> bool:
    """Whether it reads quantized numbers and writes others, or the reverse; whatever else it does."""
    return len({bool(side & _QUANTIZED) for side in _formats(layer)}) > 1


def conversion(kernel: str, layer: Layer | None) -> Conversion | None:
    """What a kernel does that no node computes; None where it computes something."""
    if layer and (of_layer := conversion_of(layer)):
        return of_layer
    if layer and layer.kind and _named_by_nodes(kernel, layer):
        return None
    kernel_class = classify(kernel).kernel_class
    if kernel_class == "quantize":
        return "quantize"
    if kernel_class == "reformat":
        casts = "cas" in own_name(kernel).lower() or "convert" in kernel.lower() or _TORCH_CAST.search(kernel)
        return "cast" if casts else "reformat"
    return None


def _formats(layer: Layer) -> tuple[set[str | None], set[str | None]]:
    """Those of what it reads, which may be weights alone, and of what it writes."""
    read = {tensor.dtype for tensor in layer.inputs} or {layer.weights} - {None}
    return read, {tensor.dtype for tensor in layer.outputs}


def _changes_format(layer: Layer) -> bool:
    before, after = _formats(layer)
    return None not in before | after and before != after


def of_case(frame: pd.DataFrame, counters: pd.DataFrame | None = None) -> pd.DataFrame:
    """`executed` of one case as one tool saw it; counters: ncu's tidy table of the same case.

    Kernels launched in iterations count, where the tool saw iterations. Where it saw layers and their times alone,
    each layer is a kernel with the name of its tactic. Raises UserError where it saw neither.
    """
    layers = trt_layers.layers_of(frame)
    if (frame["metric"] == "layer_confidence").any():
        joined = trt_kernels.attributed(frame)
        kernels = joined.loc[joined["owner_level"] == "layer", ["kernel", "duration_ns", "instances", "layer"]]
    elif (frame["level"] == "kernel").any():
        rows = of_iterations(frame[frame["metric"] == "duration_total"])
        kernels = rows[["name", "value", "instances"]].set_axis(["kernel", "duration_ns", "instances"], axis=1)
    else:
        kernels = _as_kernels(frame, layers)
    if kernels.empty:
        raise UserError("the table holds no kernel: give that of nsys, kineto, ort_nodes, trt_nodes or trt_layers")
    counted = {} if counters is None else _as_traced(kernels["kernel"].unique(), by_counters(counters))
    table = executed(kernels.reset_index(drop=True), layers, counted)
    if _NO_BLOCK_SCALES.search(next(iter(frame["machine"].dropna()), "")):
        table = without_block_scales(table)
    return table


def without_block_scales(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of `executed` where no 8-bit floats have scales of blocks."""
    return table.replace({"dtype": {EITHER_FP8: "fp8"}})


def tells(frame: pd.DataFrame) -> bool:
    """Whether `of_case` can say anything of a case."""
    timed = (frame["level"] == trt_layers.LEVEL) & frame["value"].notna()
    return bool(timed.any() or holds(frame))


def _as_kernels(frame: pd.DataFrame, layers: Sequence[Layer]) -> pd.DataFrame:
    """The timed layers as if each were one kernel, per inference."""
    tactics = {layer.name: layer.tactic or layer.name for layer in layers}
    timed = frame[(frame["level"] == trt_layers.LEVEL) & (frame["metric"] == "duration_median")]
    names = [tactics.get(str(name), str(name)) for name in timed["name"]]
    return pd.DataFrame({"kernel": names, "duration_ns": timed["value"], "instances": 1, "layer": timed["name"]})


def by_counters(frame: pd.DataFrame) -> dict[str, str]:
    """Kernel → the format of most of its tensor-core operations: frame as ncu's tidy table of one case.

    Not told is how 8-bit floats are scaled.
    """
    rows = frame[frame["metric"].str.startswith(TENSOR_OPS) & (frame["value"] > 0)]
    summed = rows.groupby(["name", "metric"])["value"].sum().reset_index()
    most = summed.sort_values("value").drop_duplicates("name", keep="last")
    formats = most["metric"].str.removeprefix(TENSOR_OPS).replace("fp8", EITHER_FP8)
    return dict(zip(most["name"], formats, strict=True))


def _as_traced(traced: Iterable[str], counted: Mapping[str, str]) -> dict[str, str]:
    """The counted kernels by the names that a trace has for them, which may spell parameters otherwise.

    A function of which either tool saw several instances is left to its names: they may differ in format.
    """
    names = list(traced)
    functions = Counter(function_name(name) for name in names), Counter(function_name(name) for name in counted)
    once = {function for function in functions[0] if all(seen[function] == 1 for seen in functions)}
    by_function = {function_name(name): dtype for name, dtype in counted.items() if function_name(name) in once}
    formats = {name: counted.get(name) or by_function.get(function_name(name)) for name in names}
    return {name: dtype for name, dtype in formats.items() if dtype}
