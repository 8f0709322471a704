"""What an ONNX file says of its inputs: names, types, and dimensions with symbols of letters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferprof.case import BATCH
from inferprof.errors import UserError

if TYPE_CHECKING:
    import onnx

Dims = tuple[int | str, ...]


def read(path: Path, *, external: bool = False) -> onnx.ModelProto:
    """Parse an ONNX file, its external data only where asked for.

    Raises UserError where it is missing, truncated or another's.
    """
    import onnx

    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        model = onnx.load(path, load_external_data=external)
    except Exception as error:  # protobuf's DecodeError, whose module differs between its versions
        reason = " ".join(str(error).split())
        raise UserError(f"{path} is not a readable ONNX file ({reason}); copy it again") from None
    if not model.graph.node:
        raise UserError(f"{path} is not an ONNX model: its graph has no nodes; copy it again")
    return model


def opset(model: onnx.ModelProto) -> int:
    """The opset of ONNX's own operators; 0 where the file names none."""
    return max((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), default=0)


def inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """What has to be fed: old files list their weights among the inputs as well."""
    weights = {item.name for item in model.graph.initializer}
    weights |= {item.values.name for item in model.graph.sparse_initializer}
    return [value for value in model.graph.input if value.name not in weights]


def describe(path: Path) -> tuple[list[tuple[str, str, Dims]], int]:
    """Name, NumPy type and dimensions of each input of a file, and its opset.

    Raises UserError where it has no inputs, or one with a dimension that is not named.
    """
    model = read(path)
    values = inputs(model)
    if not values:
        raise UserError(f"{path} has no inputs, so there is nothing to run")
    symbols = _symbols(values)
    return [(value.name, dtype(value), _dims(value, symbols, path)) for value in values], opset(model)


def dtype(value: onnx.ValueInfoProto) -> str:
    """The type of an input as NumPy calls it; `not a tensor` for sequences and maps."""
    import onnx

    element = value.type.tensor_type.elem_type
    if not value.type.HasField("tensor_type") or element not in onnx.helper.get_all_tensor_dtypes():
        return "not a tensor"
    return str(onnx.helper.tensor_dtype_to_np_dtype(element))


def dimensions(value: onnx.ValueInfoProto) -> list[Any]:
    """The dimensions of an input or output as ONNX has them."""
    return list(value.type.tensor_type.shape.dim)


def _symbols(values: Iterable[onnx.ValueInfoProto]) -> dict[str, str]:
    """A graph's names of dimensions → symbols of letters only.

    The batch is the first named axis 0, and whatever has "batch" in its name. Digits are left out (`unk__214` → unk)
    unless two names would become one: then they turn into letters (s0, s1 → sa, sb).
    """
    named = [(axis, dim.dim_param) for value in values for axis, dim in enumerate(dimensions(value)) if dim.dim_param]
    first = next((name for axis, name in named if axis == 0), None)
    letters = {name: re.sub("[^a-z]", "", name.lower()) for _, name in named}
    times = Counter(letters.values())
    symbols = {}
    for name, short in letters.items():
        digits = "".join(chr(ord("a") + int(digit)) for digit in re.findall("[0-9]", name))
        symbols[name] = short if short and times[short] == 1 else f"{short}{digits}"
        if name == first or "batch" in short:
            symbols[name] = BATCH
    return symbols


def _dims(value: onnx.ValueInfoProto, symbols: Mapping[str, str], path: Path) -> Dims:
    """Sizes and symbols of an input; an axis 0 without either is the batch."""
    dims: list[int | str] = []
    for axis, dim in enumerate(dimensions(value)):
        if dim.dim_value > 0:
            dims.append(dim.dim_value)
        elif symbol := symbols.get(dim.dim_param) or (BATCH if axis == 0 else ""):
            dims.append(symbol)
        else:
            raise UserError(
                f"{path}: input {value.name}, axis {axis}, has neither a size nor a name; "
                f"describe the inputs in {path.with_suffix('.yaml')} (source: onnx, onnx: {path.name})"
            )
    return tuple(dims)
