"""The description of a model: models/NAME.yaml, or what a bare models/NAME.onnx says of itself."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from inferprof.case import BATCH, CONTEXT, TOKENS, Shape
from inferprof.errors import UserError
from inferprof.files import left_out
from inferprof.model import onnx_inputs
from inferprof.yaml_file import check_schema, read_yaml

DEFAULT_OPSET = 20
Task = Literal["classification", "embedding", "other"]
DTYPES = ("float32", "float16", "float64", "int8", "uint8", "int32", "int64", "bool")
"""What an input may be: the types that NumPy has and every runtime here can be fed with."""

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_COMMON = {"source", "inputs", "pretrained", "seed", "opset", "export", "kv_cache", "task"}
_COMMON |= {"sizes", "max_sizes", "variants"}
_NEEDS = {
    "transformers": "architecture",
    "timm": "architecture",
    "torchvision": "architecture",
    "python": "python",
    "onnx": "onnx",
}
_TORCH = {"transformers", "timm", "torchvision", "python"}
_READ_BY = {"onnx": {"onnx"}, "python": {"python", "onnx"}, "architecture": _TORCH - {"python"}}
_READ_BY |= {key: {"transformers", "python", "onnx"} for key in ("repository", "revision", "package")}
_READ_BY |= {"sha256": {"transformers", "onnx"}, "config": {"transformers"}}
_READ_BY |= {"output": _TORCH, "parallel": _TORCH, "opset": _TORCH}


@dataclass(frozen=True)
class InputSpec:
    """One input. A dimension is a size or a symbol; `data` says what it is fed with (see data.py)."""

    name: str
    dtype: str
    dims: tuple[int | str, ...]
    data: str = "normal"

    def shape(self, shape: Shape) -> tuple[int, ...]:
        """The sizes of the dimensions at a shape."""
        sizes = {TOKENS: 1, **shape.as_dict()}  # a decode step reads one
        return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in self.dims)


@dataclass(frozen=True)
class ModelSpec:
    """A model of the study. `options` holds the keys that only its source reads (architecture, revision, …)."""

    name: str
    path: Path
    source: Literal["transformers", "timm", "torchvision", "python", "onnx"]
    inputs: tuple[InputSpec, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    pretrained: bool = True
    seed: int = 0
    opset: int = DEFAULT_OPSET
    exported: bool = True
    """Whether it becomes an ONNX file; without one it runs in torch alone."""
    kv_cache: bool = False
    """Whether it is a causal language model whose shapes name a prompt (b8_p512: prefill), a context (b8_c512: a
    decode step), or both (a chunk of a prefill)."""
    task: Task = "other"
    sizes: Mapping[str, int] = field(default_factory=dict)
    max_sizes: Mapping[str, int] = field(default_factory=dict)
    ready_made: Mapping[str, Path] = field(default_factory=dict)
    """Quantized ONNX files of the user's, by precision."""

    @property
    def from_torch(self) -> bool:
        """Whether there is a torch model, or only an ONNX file."""
        return self.source != "onnx"

    @property
    def onnx_path(self) -> Path | None:
        """The ONNX file of the source `onnx`: beside the YAML file, or inside of `package`."""
        if self.source != "onnx":
            return None
        roots = package_roots(self.options["package"]) if "package" in self.options else [self.path.parent]
        files = [root / self.options["onnx"] for root in roots]
        return next((file for file in files if file.is_file()), files[0] if files else None)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbolic dimensions in order of appearance, the batch first."""
        seen = dict.fromkeys(d for spec in self.inputs for d in spec.dims if isinstance(d, str))
        if self.kv_cache:
            seen[CONTEXT] = None
        return tuple(sorted(seen, key=lambda symbol: symbol != BATCH))

    def has(self, shape: Shape) -> bool:
        """Whether the model has every symbol that the shape names; the batch may always be given."""
        return all(symbol in self.symbols for symbol in shape.as_dict() if symbol != BATCH)

    def resolve(self, shape: Shape) -> Shape | None:
        """The shape with this model's symbols and default sizes; None where it names a symbol that the model lacks.

        Raises UserError where a symbol has no size at all.
        """
        if not self.has(shape):
            return None
        given = shape.as_dict()
        missing = [symbol for symbol in self.symbols if symbol not in given and symbol not in self.sizes]
        if self.kv_cache:
            if not given.keys() & {TOKENS, CONTEXT}:
                batch = f"{BATCH}{shape.batch}_"
                kinds = f"{batch}{TOKENS}128 (a prefill) or {batch}{CONTEXT}128 (a decode step)"
                raise UserError(f"model {self.name}: shape {shape} names neither prompt nor context; write {kinds}")
            missing = []
        if missing:
            sizes = "".join(f"{symbol}128" for symbol in missing)
            raise UserError(
                f"model {self.name}: shape {shape} gives no size to {', '.join(missing)}; write it behind the batch "
                f"({shape}{'' if '_' in str(shape) else '_'}{sizes}) or {self._where_sizes_go(missing)}"
            )
        rest = [(s, given.get(s, self.sizes.get(s, 0))) for s in self.symbols if s != BATCH]
        return Shape(((BATCH, shape.batch), *(pair for pair in rest if pair[1])))

    def sized(self, shape: Shape) -> ModelSpec:
        """The model with a shape's sizes where its description gives none: for what is drawn at sizes of its own."""
        given = {symbol: size for symbol, size in shape.sizes if symbol != BATCH and symbol in self.symbols}
        return replace(self, sizes={**given, **self.sizes})

    @property
    def unsized(self) -> tuple[str, ...]:
        """The symbols that only a shape gives sizes to, without the batch."""
        return tuple(symbol for symbol in self.symbols if symbol != BATCH and symbol not in self.sizes)

    def _where_sizes_go(self, symbols: Sequence[str]) -> str:
        """Where a description takes the sizes of symbols; of a bare ONNX file a whole one, in YAML on one line."""
        if self.path.suffix != ".onnx":
            return f"under sizes: in {self.path}"
        described = self.stub(symbols)
        guess = (
            " (integers:2 is a guess: token ids want the size of the vocabulary)" if "integers:2" in described else ""
        )
        return f"into {self.path.with_suffix('.yaml')}{guess}, as in {described}"

    def stub(self, symbols: Sequence[str], given: Shape | None = None) -> str:
        """A description of a bare ONNX file to begin with, with sizes for these symbols: YAML on one line."""
        inputs = [(item.name, item.dtype, item.dims) for item in self.inputs]
        return onnx_inputs.stub(self.path, inputs, symbols, given.as_dict() if given else {})

    def at(self, shape: Shape) -> Shape:
        """As `resolve`, but raises UserError also for a symbol that the model lacks."""
        resolved = self.resolve(shape)
        if resolved is None:
            meant = self._meant(shape)
            write = f"; write {meant}" if meant else ""
            has = (
                f"its symbols: {', '.join(self.symbols)}" if self.symbols else "all of its sizes are fixed: write b1"
            )
            raise UserError(f"model {self.name} has no such shape as {shape}; {has}{write}")
        return resolved

    def _meant(self, shape: Shape) -> str:
        """A shape with the symbols that it lacks in the place of those that the model lacks; empty if not as many."""
        unknown = [symbol for symbol in shape.as_dict() if symbol not in (*self.symbols, BATCH)]
        unnamed = [symbol for symbol in self.symbols if symbol not in (*shape.as_dict(), BATCH)]
        if len(unknown) != len(unnamed):
            return ""
        names = dict(zip(unknown, unnamed, strict=True))
        return Shape(tuple((names.get(symbol, symbol), size) for symbol, size in shape.sizes)).label

    def exceeds(self, shape: Shape) -> str | None:
        """Why a resolved shape is too large for the model, or None."""
        for symbol, size in shape.sizes:
            if size > self.max_sizes.get(symbol, size):
                return f"{symbol}{size} is over the model's maximum {symbol}{self.max_sizes[symbol]}"
        if BATCH not in self.symbols and shape.batch != 1:
            return f"the model has a fixed batch, so b{shape.batch} cannot be run; allowed: b1"
        return None


def input_shapes(spec: ModelSpec, shape: Shape) -> dict[str, tuple[int, ...]]:
    """Input → its sizes at a shape."""
    return {item.name: item.shape(shape) for item in spec.inputs}


def package_roots(package: str) -> list[Path]:
    """The folders of an importable package, found without importing it; none where it is not installed."""
    try:
        module_spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # its parent is not installed, or it has no file
        return []
    return [Path(root) for root in (module_spec.submodule_search_locations or [])] if module_spec else []


def discover(folder: Path, wanted: Container[str] = ()) -> dict[str, Path]:
    """The models of a folder, sorted: name → its YAML file, or the ONNX file where no YAML file speaks of it.
    Two of one name, and names that no path can have, are left out, as stderr says; UserError if they are `wanted`."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; it holds one YAML or ONNX file per model")
    files = sorted(path for path in folder.iterdir() if path.name[0] != ".")  # ._NAME: macOS's, .#NAME: Emacs's
    described = [path for path in files if path.suffix in (".yaml", ".yml")]
    spoken_of = {folder / file for path in described for file in _files_of(path)}
    bare = [path for path in files if path.suffix == ".onnx" and path not in spoken_of]
    models: dict[str, Path] = {}
    why: dict[str, str] = {}
    for path in [*described, *bare]:
        if not _NAME.fullmatch(path.stem):
            why[path.stem] = f"{path}: a model's name has letters, digits and ._- only; rename the file"
        elif other := models.get(path.stem):
            why[path.stem] = f"two models are named {path.stem}: {other} and {path}; rename one of them"
        models[path.stem] = path
    for name, reason in why.items():
        if name in wanted:
            raise UserError(reason)
        left_out(reason)
    return {name: path for name, path in sorted(models.items()) if name not in why}


def _files_of(path: Path) -> Iterator[str]:
    """The ONNX files that a YAML file speaks of; none where it can't be read, which `load` will say."""
    try:
        content = read_yaml(path)
    except UserError:
        return
    if isinstance(content, dict):
        ready_made = variants.values() if isinstance(variants := content.get("variants"), dict) else []
        files = [content.get("onnx"), *ready_made]
        yield from (file for file in files if isinstance(file, str))


def load(path: Path) -> ModelSpec:
    """Read models/NAME.yaml or a bare models/NAME.onnx. Raises UserError in one line for whatever is wrong in it."""
    if path.suffix == ".onnx":
        return of_onnx(path)
    content = read_yaml(path)
    check_schema(content, "model", str(path))
    spec = _from_yaml(path, content)
    _check(spec)
    if unread := [key for key in content if spec.source not in _READ_BY.get(key, spec.source)]:
        by = ", ".join(sorted(_READ_BY[unread[0]]))
        raise UserError(f"{path}: source {spec.source} does not read {unread[0]}: (only {by}): leave it out")
    if spec.kv_cache:
        _check_kv_cache(spec)
    return spec


@functools.cache  # asked for once per job
def is_unsized(path: Path) -> bool:
    """Whether only a shape gives sizes to some symbol of a model."""
    return bool(load(path).unsized)


def _from_yaml(path: Path, content: Mapping[str, Any]) -> ModelSpec:
    """A ModelSpec of validated YAML."""
    given = content["inputs"]
    inputs = (InputSpec(i["name"], i["dtype"], tuple(i["dims"]), i.get("data", "normal")) for i in given)
    return ModelSpec(
        name=path.stem,
        path=path,
        source=content["source"],
        inputs=tuple(inputs),
        options={key: value for key, value in content.items() if key not in _COMMON},
        pretrained=content.get("pretrained", True),
        seed=content.get("seed", 0),
        opset=content.get("opset", DEFAULT_OPSET),
        exported=content.get("export", not content.get("kv_cache", False)),
        kv_cache=content.get("kv_cache", False),
        task=content.get("task", "other"),
        sizes=content.get("sizes", {}),
        max_sizes=content.get("max_sizes", {}),
        ready_made={name: path.parent / file for name, file in content.get("variants", {}).items()},
    )


def _check(spec: ModelSpec) -> None:
    """What a schema can't say. Raises UserError."""
    if (key := _NEEDS[spec.source]) not in spec.options:
        raise UserError(f"{spec.path}: source {spec.source} needs the key {key}:")
    if spec.source == "transformers" and spec.pretrained and not {"repository", "package"} & spec.options.keys():
        raise UserError(
            f"{spec.path}: pretrained weights of {spec.options[key]} need repository: and revision:, or package:; "
            "write pretrained: false for random ones"
        )
    if "repository" in spec.options and "revision" not in spec.options:
        raise UserError(f"{spec.path}: repository: needs revision:, the 40 digits of the commit that is meant")
    if not (spec.exported or spec.from_torch):
        raise UserError(f"{spec.path}: source onnx is an ONNX file already; export: false is for torch sources")
    if twice := [name for name, count in Counter(item.name for item in spec.inputs).items() if count > 1]:
        raise UserError(f"{spec.path}: two inputs are named {twice[0]}")
    for symbol, size in [*spec.sizes.items(), *spec.max_sizes.items()]:
        if symbol not in spec.symbols:
            raise UserError(f"{spec.path}: no input has the symbol {symbol}; they have {', '.join(spec.symbols)}")
        if size > spec.max_sizes.get(symbol, size):
            raise UserError(f"{spec.path}: size {symbol}: {size} is over its maximum {spec.max_sizes[symbol]}")
    if not spec.from_torch and spec.onnx_path is None:
        package = spec.options["package"]
        raise UserError(f"{spec.path}: package {package}, which carries the ONNX file, is not installed; install it")
    for file in [*([spec.onnx_path] if spec.onnx_path else []), *spec.ready_made.values()]:
        if not file.is_file():
            root = "package" if file == spec.onnx_path and "package" in spec.options else "folder of the YAML file"
            raise UserError(f"{spec.path}: {file} is no file that exists; paths count from the {root}")


def _check_kv_cache(spec: ModelSpec) -> None:
    """What prefill and decode need: a model of transformers that token ids alone are fed to. Raises UserError."""
    if spec.source != "transformers" or spec.exported:
        raise UserError(
            f"{spec.path}: kv_cache: true is for source transformers, without export: true: torch runs it"
        )
    if len(spec.inputs) != 1 or spec.inputs[0].dims != (BATCH, TOKENS):
        raise UserError(f"{spec.path}: kv_cache: true needs one input, token ids, with dims [{BATCH}, {TOKENS}]")
    if spec.sizes:
        raise UserError(f"{spec.path}: kv_cache: true: prompt and context stand in shapes, so leave sizes: out")


def of_onnx(path: Path, *, open_axes: bool = False) -> ModelSpec:
    """A ModelSpec of a bare ONNX file. Raises UserError where the file does not say what to feed.

    With `open_axes` an axis without a size and a name has a symbol, as `onnx_inputs.describe` offers it.
    """
    inputs, opset = onnx_inputs.describe(path, open_axes=open_axes)
    spec = ModelSpec(
        name=path.stem,
        path=path,
        source="onnx",
        inputs=tuple(InputSpec(name, dtype, dims, _data_for(path, name, dtype)) for name, dtype, dims in inputs),
        options={"onnx": path.name},
        opset=opset,
    )
    _check(spec)
    return spec


def _data_for(path: Path, name: str, dtype: str) -> str:
    """What fits a type without knowing the model: indices are kept below 2, which any table has."""
    if dtype not in DTYPES:
        of = "of strings" if dtype == "object" else dtype  # NumPy's word for them
        raise UserError(
            f"{path}: input {name} is {of}, which cannot be fed; allowed: {', '.join(DTYPES)}; cut off what stands "
            "in front of such inputs, or ask inferprof audit and partition about the graph alone"
        )
    if dtype.startswith("float"):
        return "normal"
    return "zeros" if dtype == "bool" else "integers:2"
