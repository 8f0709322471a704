"""What an ONNX file says of its inputs: names, types, and dimensions with symbols of letters."""

from __future__ import annotations

import ast
import json
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferprof.case import BATCH
from inferprof.errors import UserError
from inferprof.model.onnx_graph import dimensions, dtype, inputs, opset
from inferprof.model.onnx_reader import outline

if TYPE_CHECKING:
    import onnx

Dims = tuple[int | str, ...]
ARITHMETIC: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
OPEN_SIZE = 128
"""What stands for a size that nobody gives."""
UNNAMED = "unnamed"
"""How the symbol ends that is offered for an axis without a size and a name."""
FOLLOWS = re.compile(r"[*/+%()]|\s-\s")
"""What a name of a dimension has that is an expression of other names."""


def describe(path: Path, *, open_axes: bool = False) -> tuple[list[tuple[str, str, Dims]], int]:
    """Name, NumPy type and dimensions of each input of a file, and its opset.

    Raises UserError where it has no inputs, or one with a dimension that is not named, unless `open_axes` are taken:
    these have the symbols that are offered.
    """
    model = outline(path)
    values = inputs(model)
    if not values:
        raise UserError(f"{path} has no inputs, so there is nothing to run")
    if other := [f"{value.name} is {_form(value)}" for value in values if _form(value)]:
        raise UserError(
            f"{path}: input {other[0]}, which cannot be fed; allowed: tensors; ask inferprof audit and partition "
            "about the graph alone"
        )
    if unshaped := [value.name for value in values if not value.type.tensor_type.HasField("shape")]:
        raise UserError(
            f"{path}: input {unshaped[0]} has no shape; "
            f"describe the inputs in {path.with_suffix('.yaml')} (source: onnx, onnx: {path.name})"
        )
    for value in values:
        for axis, dim in enumerate(dimensions(value)):
            if dim.HasField("dim_value") and dim.dim_value == 0:
                raise UserError(
                    f"{path}: input {value.name}, axis {axis}, is of size 0, so there is nothing to infer; "
                    "export it again with a size or a name there"
                )
    symbols = _symbols(values)
    offered = _offered(values, symbols)
    described = [(value.name, dtype(value), _dims(value, symbols, offered)) for value in values]
    for value in values if not open_axes else ():
        for axis, dim in enumerate(dimensions(value)):
            if _is_unnamed(dim, axis, symbols):
                raise UserError(_unnamed(path, value, axis, described))
    return described, opset(model)


def _form(value: onnx.ValueInfoProto) -> str:
    """`a sequence`, `an optional`: what an input is that is no tensor; else nothing."""
    kind = (value.type.WhichOneof("value") or "").removesuffix("_type").replace("_", " ")
    return "" if kind in ("", "tensor") else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _is_unnamed(dim: Any, axis: int, symbols: Mapping[str, str]) -> bool:
    """Whether an axis has neither a size nor a name of its own; without both the first one is the batch."""
    return dim.dim_value < 1 and dim.dim_param not in symbols and (axis > 0 or bool(dim.dim_param))


def _unnamed(path: Path, value: onnx.ValueInfoProto, axis: int, described: Sequence[tuple[str, str, Dims]]) -> str:
    """What to say of such an axis."""
    own = dimensions(value)[axis].dim_param
    lacks = f"follows from others ({own})" if own else "has neither a size nor a name"
    open_sizes = dict.fromkeys(str(dim) for _, _, dims in described for dim in dims if str(dim).endswith(UNNAMED))
    return (
        f"{path}: input {value.name}, axis {axis}, {lacks}; describe the inputs in {path.with_suffix('.yaml')}, "
        f"as in {stub(path, described, list(open_sizes), {})}"
    )


def implied(path: Path, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes of axes that follow from others (`past_length + 1`), by the symbols that are offered for them, as far
    as `sizes` of the others tell them."""
    values = inputs(outline(path))
    symbols = _symbols(values)
    by_name = {name: sizes[symbol] for name, symbol in symbols.items() if symbol in sizes}
    axes = {value.name: dimensions(value) for value in values}
    expressions = {symbol: axes[name][axis].dim_param for (name, axis), symbol in _offered(values, symbols).items()}
    follow = {symbol: _evaluated(expression, by_name) for symbol, expression in expressions.items()}
    return {symbol: size for symbol, size in follow.items() if size is not None and size > 0}


def _evaluated(expression: str, sizes: Mapping[str, int]) -> int | None:
    """The value of whole numbers and names of dimensions under + - * // %; None where there is anything else."""
    numbered = {name: f"d{number}" for number, name in enumerate(sorted(sizes, key=len, reverse=True))}
    for name, short in numbered.items():
        expression = re.sub(rf"(?<![\w.]){re.escape(name)}(?![\w.])", f" {short} ", expression)
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError):
        return None
    return _value(tree.body, {numbered[name]: size for name, size in sizes.items()})


def _value(node: ast.expr, sizes: Mapping[str, int]) -> int | None:
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.Name):
        return sizes.get(node.id)
    if not isinstance(node, ast.BinOp) or type(node.op) not in ARITHMETIC:
        return None
    left, right = _value(node.left, sizes), _value(node.right, sizes)
    divides = isinstance(node.op, (ast.FloorDiv, ast.Mod))
    if left is None or right is None or (divides and not right):
        return None
    return ARITHMETIC[type(node.op)](left, right)


def stub(
    path: Path, described: Sequence[tuple[str, str, Dims]], open_sizes: Sequence[str], given: Mapping[str, int]
) -> str:
    """A description of an ONNX file to begin with, in YAML on one line; each open size is what is `given`, else what
    follows from others, else OPEN_SIZE."""
    inputs = ", ".join(
        f"{{name: {json.dumps(name)}, dtype: {dtype}, dims: [{', '.join(map(str, dims))}]"
        f"{'' if dtype.startswith('float') else ', data: integers:2'}}}"
        for name, dtype, dims in described
    )
    open_symbols = {dim: OPEN_SIZE for _, _, dims in described for dim in dims if isinstance(dim, str)}
    settled = {**implied(path, {**open_symbols, BATCH: 1, **given}), **given}
    sizes = ", ".join(f"{symbol}: {settled.get(symbol, OPEN_SIZE)}" for symbol in open_sizes)
    return f"{{source: onnx, onnx: {json.dumps(path.name)}, inputs: [{inputs}], sizes: {{{sizes}}}}}"


def _symbols(values: Iterable[onnx.ValueInfoProto]) -> dict[str, str]:
    """A graph's names of dimensions → symbols of letters only, no two names with one symbol.

    The batch is whatever has "batch" in its name, or else the first named axis 0. Digits are left out (`unk__214` →
    unk) unless two names would become one: then they turn into letters (s0, s1 → sa, sb). What follows from other
    sizes (`batch*4`) has no symbol.
    """
    named = [(axis, dim.dim_param) for value in values for axis, dim in enumerate(dimensions(value)) if dim.dim_param]
    named = [(axis, name) for axis, name in named if not FOLLOWS.search(name)]
    letters = {name: re.sub("[^a-z]", "", name.lower()) for _, name in named}
    first = [name for axis, name in named if axis == 0][:1]
    batches = [name for name, short in letters.items() if "batch" in short] or first
    symbols = dict.fromkeys(batches, BATCH)
    times = Counter(short for name, short in letters.items() if name not in symbols)
    for name, short in letters.items():
        if name in symbols:
            continue
        digits = "".join(chr(ord("a") + int(digit)) for digit in re.findall("[0-9]", name))
        symbol = short if short and times[short] == 1 else f"{short}{digits}"
        while not symbol or symbol in symbols.values():
            symbol += "x"
        symbols[name] = symbol
    return symbols


def _offered(values: Iterable[onnx.ValueInfoProto], symbols: Mapping[str, str]) -> dict[tuple[str, int], str]:
    """Input and axis → the symbol that is offered for an axis without a size and a name.

    Inputs of the same dimensions, such as the ids and the mask of a sentence, have the same; a state of a network has
    not those of the sequence beside it.
    """
    forms: dict[str, Any] = {}
    offered: dict[tuple[str, int], str] = {}
    for value in values:
        form = [(dim.dim_value, dim.dim_param) for dim in dimensions(value)]
        for axis, dim in enumerate(dimensions(value)):
            if _is_unnamed(dim, axis, symbols):
                symbol = f"{'abcdefghijklmnopqrstuvwxyz'[axis % 26]}{UNNAMED}"
                if forms.setdefault(symbol, form) != form:
                    symbol = re.sub("[^a-z]", "", value.name.lower()) + symbol
                offered[value.name, axis] = symbol
    return offered


def _dims(value: onnx.ValueInfoProto, symbols: Mapping[str, str], offered: Mapping[tuple[str, int], str]) -> Dims:
    """Sizes and symbols of an input. An axis 0 without either is the batch; another one has what is offered."""
    return tuple(
        dim.dim_value if dim.dim_value > 0 else offered.get((value.name, axis)) or symbols.get(dim.dim_param, BATCH)
        for axis, dim in enumerate(dimensions(value))
    )
