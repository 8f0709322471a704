"""The description of a model: models/NAME.yaml, or what a bare models/NAME.onnx says of itself."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from inferprof.case import BATCH, Shape
from inferprof.errors import UserError

DEFAULT_OPSET = 20
Task = Literal["classification", "embedding", "other"]


@dataclass(frozen=True)
class InputSpec:
    """One input. A dimension is a size or a symbol; `data` says what it is fed with (see data.py)."""

    name: str
    dtype: str
    dims: tuple[int | str, ...]
    data: str = "normal"

    def shape(self, shape: Shape) -> tuple[int, ...]:
        """The sizes of the dimensions at a shape."""
        sizes = shape.as_dict()
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
        """The user's ONNX file, for the source `onnx`."""
        return self.path.parent / self.options["onnx"] if self.source == "onnx" else None

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbolic dimensions in order of appearance, the batch first."""
        seen = dict.fromkeys(d for spec in self.inputs for d in spec.dims if isinstance(d, str))
        return tuple(sorted(seen, key=lambda symbol: symbol != BATCH))

    def resolve(self, shape: Shape) -> Shape | None:
        """The shape with this model's symbols and default sizes; None where it names a symbol that the model lacks.

        Raises UserError where a symbol has no size at all.
        """
        given = shape.as_dict()
        if any(symbol not in self.symbols for symbol in given if symbol != BATCH):
            return None
        missing = [symbol for symbol in self.symbols if symbol not in given and symbol not in self.sizes]
        if missing:
            raise UserError(
                f"model {self.name}: shape {shape} gives no size to {', '.join(missing)}; "
                f"write it behind the batch (b8_{missing[0]}128) or under sizes: in {self.path}"
            )
        rest = [(s, given.get(s, self.sizes.get(s, 0))) for s in self.symbols if s != BATCH]
        return Shape(((BATCH, shape.batch), *rest))

    def exceeds(self, shape: Shape) -> str | None:
        """Why a resolved shape is too large for the model, or None."""
        for symbol, size in shape.sizes:
            if size > self.max_sizes.get(symbol, size):
                return f"{symbol}{size} is over the model's maximum {symbol}{self.max_sizes[symbol]}"
        if BATCH not in self.symbols and shape.batch != 1:
            return f"the model has a fixed batch, so b{shape.batch} cannot be run; allowed: b1"
        return None


def discover(folder: Path) -> dict[str, Path]:
    """Name → file of every model of a folder: NAME.yaml, or a bare NAME.onnx that no YAML file describes.

    Raises UserError where two files claim one name, or where there is no such folder.
    """
    import yaml

    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; models are looked for there, as NAME.yaml or NAME.onnx")
    found: dict[str, Path] = {}
    described: set[Path] = set()
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        if path.stem in found:
            raise UserError(f"two models are named {path.stem}: {found[path.stem]} and {path}; rename one of them")
        found[path.stem] = path
        with contextlib.suppress(yaml.YAMLError, AttributeError):  # `load` says what is wrong with the file
            described.add(folder / str(yaml.safe_load(path.read_text(encoding="utf-8")).get("onnx")))
    for path in sorted(set(folder.glob("*.onnx")) - described):
        if path.stem in found:
            raise UserError(f"two models are named {path.stem}: {found[path.stem]} and {path}; rename one of them")
        found[path.stem] = path
    return found


def load(path: Path) -> ModelSpec:
    """Read models/NAME.yaml or a bare models/NAME.onnx. Raises UserError in one line for whatever is wrong in it."""
    if path.suffix == ".onnx":
        return _from_onnx(path)
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}") from None
    check_schema(content, "model", str(path))
    return _from_yaml(path, content)


def check_schema(content: Any, schema: str, where: str) -> None:
    """Validate against schemas/{schema}.schema.json; raises UserError with the first violation in one line."""
    import jsonschema

    text = resources.files("inferprof").joinpath("schemas", f"{schema}.schema.json").read_text(encoding="utf-8")
    validator = jsonschema.Draft202012Validator(json.loads(text))
    error = jsonschema.exceptions.best_match(validator.iter_errors(content))
    if error is None:
        return
    place = ".".join(str(part) for part in error.absolute_path) or "top level"
    allowed = ""
    if error.validator == "additionalProperties" and isinstance(error.schema, dict):
        allowed = f"; allowed: {', '.join(sorted(error.schema.get('properties', {})))}"
    raise UserError(f"{where}: {place}: {error.message}{allowed}")


def _from_yaml(path: Path, content: Mapping[str, Any]) -> ModelSpec:
    """A ModelSpec of validated YAML."""
    common = {"source", "inputs", "pretrained", "seed", "opset", "task", "sizes", "max_sizes", "variants"}
    if content["source"] in ("onnx", "python") and content["source"] not in content:
        raise UserError(f"{path}: source {content['source']} needs the key {content['source']}:")
    inputs = tuple(
        InputSpec(item["name"], item["dtype"], tuple(item["dims"]), item.get("data", "normal"))
        for item in content["inputs"]
    )
    return ModelSpec(
        name=path.stem,
        path=path,
        source=content["source"],
        inputs=inputs,
        options={key: value for key, value in content.items() if key not in common},
        pretrained=content.get("pretrained", True),
        seed=content.get("seed", 0),
        opset=content.get("opset", DEFAULT_OPSET),
        task=content.get("task", "other"),
        sizes=content.get("sizes", {}),
        max_sizes=content.get("max_sizes", {}),
        ready_made={name: path.parent / file for name, file in content.get("variants", {}).items()},
    )


def _from_onnx(path: Path) -> ModelSpec:
    """A ModelSpec of a bare ONNX file: a dynamic first dimension is the batch, others keep their symbol's letters."""
    import onnx

    try:
        graph = onnx.load(path, load_external_data=False).graph
    except Exception as error:  # protobuf raises its own DecodeError, onnx others
        raise UserError(
            f"{path} is not a readable ONNX file ({' '.join(str(error).split())}); copy it again"
        ) from None
    weights = {initializer.name for initializer in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    if not inputs:
        raise UserError(f"{path} has no inputs, so there is nothing to run")
    return ModelSpec(
        name=path.stem,
        path=path,
        source="onnx",
        inputs=tuple(_onnx_input(value, path) for value in inputs),
        options={"onnx": path.name},
    )


def _onnx_input(value: Any, path: Path) -> InputSpec:
    """An InputSpec of an ONNX ValueInfoProto."""
    import onnx

    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        raise UserError(
            f"{path}: input {value.name} is not a tensor, which cannot be fed; export it without sequences"
        )
    dtype = str(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    dims: list[int | str] = []
    for axis, dim in enumerate(tensor.shape.dim):
        letters = "".join(c for c in dim.dim_param.lower() if c.isalpha())
        if dim.dim_value > 0:
            dims.append(dim.dim_value)
        elif axis == 0:
            dims.append(BATCH)
        elif letters:
            dims.append(letters)
        else:
            raise UserError(
                f"{path}: input {value.name}, axis {axis}, has neither a size nor a name; "
                f"describe the inputs in {path.with_suffix('.yaml')} (source: onnx, onnx: {path.name})"
            )
    data = "normal" if dtype.startswith("float") else "zeros" if dtype == "bool" else "integers:2"
    return InputSpec(value.name, dtype, tuple(dims), data)
