"""Torch models out of transformers, timm, torchvision or the user's Python, behind one positional interface."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from inferprof import files, pretrained
from inferprof.errors import UserError
from inferprof.model_spec import ModelSpec

if TYPE_CHECKING:
    import torch

WRAPPED = "model"
"""The attribute of the wrapper that holds the model, hence the first part of the names of its weights."""


@dataclass(frozen=True)
class TorchSource:
    """A torch module and where it came from; `facts` go into the report."""

    module: torch.nn.Module
    facts: Mapping[str, Any] = field(default_factory=dict)


def load(spec: ModelSpec) -> TorchSource:
    """The model of a torch source, in eval mode and fp32 on the CPU. Raises UserError where it can't be had."""
    if not spec.from_torch:
        raise UserError(f"model {spec.name} is an ONNX file, not a torch model; choose an ONNX runtime")
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)
        model, facts = _SOURCES[spec.source](spec)
    if not isinstance(model, torch.nn.Module):
        raise UserError(f"model {spec.name}: {spec.source} gave a {type(model).__name__}, not a torch.nn.Module")
    wrapped = _wrap(model.float(), spec).eval()
    parameters = sum(parameter.numel() for parameter in wrapped.parameters())
    return TorchSource(wrapped, facts | {"parameters": parameters, "torch": str(torch.__version__)})


def _wrap(model: torch.nn.Module, spec: ModelSpec) -> torch.nn.Module:
    """`model` behind positional inputs and one output tensor."""
    import torch

    names = [item.name for item in spec.inputs]
    by_name = spec.source == "transformers"
    pooling = spec.options.get("pooling")
    mask_at = next((i for i, item in enumerate(spec.inputs) if item.data == "token_mask"), None)

    class Positional(torch.nn.Module):  # type: ignore[misc]  # torch is an untyped import here
        def __init__(self) -> None:
            super().__init__()
            self.add_module(WRAPPED, model)

        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            result = model_of(self)(**dict(zip(names, inputs, strict=True))) if by_name else model_of(self)(*inputs)
            tensor = _select(result, spec)
            return _pool(tensor, inputs, pooling, mask_at) if pooling else tensor

    def model_of(wrapper: torch.nn.Module) -> torch.nn.Module:
        inner = getattr(wrapper, WRAPPED)
        assert isinstance(inner, torch.nn.Module)
        return inner

    return Positional()


def _select(result: Any, spec: ModelSpec) -> Any:
    """The tensor `output` of what a model returned: a tensor, a tuple or a mapping."""
    output = spec.options.get("output")
    if isinstance(result, Mapping):
        if output is not None and output not in result:
            raise UserError(f"model {spec.name}: no output {output}; known: {', '.join(result)}")
        return result[output] if output is not None else next(iter(result.values()))
    return result[0] if isinstance(result, tuple | list) else result


def _pool(states: Any, inputs: tuple[Any, ...], pooling: str, mask_at: int | None) -> Any:
    """[b, s, hidden] → a unit vector per row [b, hidden]: the first token's, or the mean over the unmasked tokens.

    As sentence-transformers' Pooling and Normalize layers; the floors are values that float16 can hold.
    """
    import torch

    if pooling == "cls":
        pooled = states[:, 0]
    elif mask_at is None:
        pooled = states.mean(dim=1)
    else:
        mask = inputs[mask_at].unsqueeze(-1).to(states.dtype)
        pooled = (states * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)
    return torch.nn.functional.normalize(pooled, dim=-1, eps=1e-6)


def _transformers(spec: ModelSpec) -> tuple[Any, dict[str, Any]]:
    """A class of transformers: of a repository's weights, or with seeded random ones of a given configuration."""
    import transformers

    name = spec.options["architecture"]
    architecture: Any = getattr(transformers, name, None)
    if not hasattr(architecture, "from_pretrained"):
        raise UserError(
            f"{spec.path}: architecture {name!r} is not a model class of transformers {transformers.__version__}; "
            "name one such as ViTForImageClassification"
        )
    facts: dict[str, Any] = {"architecture": name, "transformers": transformers.__version__}
    # Eager attention exports to MatMul and Softmax, which every runtime's ONNX parser fuses as it likes.
    transformers.AttentionMaskInterface.register("eager", _eager_mask)
    if not spec.pretrained:
        config = _configuration(architecture, spec)
        model = architecture._from_config(config, attn_implementation="eager")
        return model, facts | {"origin": f"random weights, seed {spec.seed}"}
    found = pretrained.weights(spec)
    try:
        model = architecture.from_pretrained(
            found.folder, attn_implementation="eager", local_files_only=True, use_safetensors=True, dtype="float32"
        )
    except (OSError, ValueError) as error:
        raise UserError(f"model {spec.name}: {found.origin}: {' '.join(str(error).split())}") from error
    weights = {path.name: files.sha256(path) for path in found.weights}
    return model, facts | {"origin": found.origin, "weights": weights}


def _eager_mask(*args: Any, **options: Any) -> Any:
    """transformers' mask for eager attention, but none where nothing is masked.

    While it is traced, transformers builds a mask of zeros even then, and each attention of the exported graph adds
    it. https://huggingface.co/docs/transformers/attention_interface
    """
    from transformers.masking_utils import eager_mask

    may_skip = options.get("allow_is_bidirectional_skip") and options.get("local_size") is None
    return None if may_skip and options.get("attention_mask") is None else eager_mask(*args, **options)


def _configuration(architecture: Any, spec: ModelSpec) -> Any:
    """The architecture's configuration with the fields of the YAML; a misspelt field is refused, not ignored."""
    config_class = architecture.config_class
    if config_class is None:
        raise UserError(f"{spec.path}: {architecture.__name__} is an Auto class; name the class itself")
    fields = dict(spec.options.get("config", {}))
    unknown = [name for name in fields if not hasattr(config_class(), name)]
    if unknown:
        raise UserError(f"{spec.path}: config: {config_class.__name__} has no field {', '.join(unknown)}")
    return config_class(**fields)


def _timm(spec: ModelSpec) -> tuple[Any, dict[str, Any]]:
    """A model of timm, by its name there."""
    timm = _optional("timm", spec)
    timm.layers.set_fused_attn(False)  # plain MatMul and Softmax, as for transformers
    name = str(spec.options["architecture"])
    if not timm.is_model(name.split(".")[0]):
        raise UserError(f"{spec.path}: timm {timm.__version__} has no model {name}")
    try:
        model = timm.create_model(name, pretrained=spec.pretrained)
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"model {spec.name}: timm: {' '.join(str(error).split())}") from error
    return model, {"architecture": name, "timm": timm.__version__, "origin": _weights_of(spec, f"timm {name}")}


def _torchvision(spec: ModelSpec) -> tuple[Any, dict[str, Any]]:
    """A model of torchvision, by its name there; pretrained means its default weights."""
    torchvision = _optional("torchvision", spec)
    name = str(spec.options["architecture"])
    if name not in torchvision.models.list_models():
        raise UserError(f"{spec.path}: torchvision {torchvision.__version__} has no model {name}")
    try:
        model = torchvision.models.get_model(name, weights="DEFAULT" if spec.pretrained else None)
    except OSError as error:
        raise UserError(f"model {spec.name}: torchvision: {' '.join(str(error).split())}") from error
    origin = _weights_of(spec, f"torchvision {name} DEFAULT")
    return model, {"architecture": name, "torchvision": torchvision.__version__, "origin": origin}


def _python(spec: ModelSpec) -> tuple[Any, dict[str, Any]]:
    """What the user's factory returns: `module:factory`, the module beside the YAML file or importable."""
    module_name, _, factory_name = str(spec.options["python"]).partition(":")
    module = _user_module(module_name, spec)
    factory = getattr(module, factory_name, None)
    if not callable(factory):
        raise UserError(f"{spec.path}: {module_name} has no function {factory_name}")
    return factory(), {"origin": f"python {module_name}:{factory_name}, seed {spec.seed}"}


def _user_module(name: str, spec: ModelSpec) -> Any:
    """A module from the file beside the YAML, which wins over an installed one of that name."""
    path = spec.path.parent.joinpath(*name.split(".")).with_suffix(".py")
    if not path.is_file():
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise UserError(f"{spec.path}: no module {name}: neither {path} nor installed ({error})") from None
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # dataclasses and pickling look their module up there
    found.loader.exec_module(module)
    return module


def _optional(library: str, spec: ModelSpec) -> Any:
    """An optional library, or a UserError that says how to get it."""
    try:
        return importlib.import_module(library)
    except (ImportError, RuntimeError) as error:  # torchvision built for another torch raises RuntimeError
        raise UserError(
            f"model {spec.name} needs {library}, which cannot be imported ({' '.join(str(error).split())}); "
            f"install the {library} that belongs to this torch"
        ) from None


def _weights_of(spec: ModelSpec, pretrained: str) -> str:
    """The origin of the weights in words."""
    return pretrained if spec.pretrained else f"random weights, seed {spec.seed}"


_SOURCES: Mapping[str, Callable[[ModelSpec], tuple[Any, dict[str, Any]]]] = {
    "transformers": _transformers,
    "timm": _timm,
    "torchvision": _torchvision,
    "python": _python,
}
