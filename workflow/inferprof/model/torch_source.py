"""Torch models out of transformers, timm, torchvision or the user's Python, behind one positional interface."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from inferprof import files
from inferprof.errors import UserError
from inferprof.model import pretrained
from inferprof.model.model_spec import ModelSpec
from inferprof.model.whole_masks import register_whole_masks

if TYPE_CHECKING:
    import numpy as np
    import torch

Attention = Literal["eager", "sdpa"]
"""eager: MatMul and Softmax, which every runtime's ONNX parser knows and fuses as it likes. sdpa: torch's own fused
scaled_dot_product_attention. Sources other than transformers and timm do as their code says."""

MANY = 1 << 28
DRAWN = 1_048_573
"""Random numbers of a model of more weights than MANY: a prime, so that no two rows of a matrix are alike."""
WRAPPED = "model"
"""The attribute of the wrapper that holds the model, hence the first part of the names of its weights."""


@dataclass(frozen=True)
class TorchSource:
    """A torch module and where it came from; `facts` go into the report."""

    module: torch.nn.Module
    facts: Mapping[str, Any] = field(default_factory=dict)


def load(spec: ModelSpec, attention: Attention) -> TorchSource:
    """The model of a torch source, in eval mode and fp32 on the CPU. Raises UserError where it can't be had."""
    if not spec.from_torch:
        raise UserError(f"model {spec.name} is an ONNX file, not a torch model; choose an ONNX runtime")
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)
        model, facts = _SOURCES[spec.source](spec, attention)
    if not isinstance(model, torch.nn.Module):
        raise UserError(f"model {spec.name}: {spec.source} gave a {type(model).__name__}, not a torch.nn.Module")
    wrapped = (_with_cache if spec.kv_cache else _wrap)(model.float(), spec).eval()
    parameters = sum(parameter.numel() for parameter in wrapped.parameters())
    return TorchSource(wrapped, facts | {"parameters": parameters, "torch": str(torch.__version__)})


def set_tf32(on: bool) -> None:
    """Say whether fp32 may be computed in TF32, for matrix products and for cuDNN, whose defaults differ.

    The newer `fp32_precision` switches break torch.compile (pytorch issue 166387), so the older ones are used.
    """
    import torch

    torch.set_float32_matmul_precision("high" if on else "highest")
    torch.backends.cudnn.allow_tf32 = on


def _with_cache(model: torch.nn.Module, spec: ModelSpec) -> torch.nn.Module:
    from inferprof.model import causal_lm

    return causal_lm.load(model, spec)


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
            inner = getattr(self, WRAPPED)
            result = inner(**dict(zip(names, inputs, strict=True))) if by_name else inner(*inputs)
            tensor = _select(result, spec)
            return _pool(tensor, inputs, pooling, mask_at) if pooling else tensor

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


def _transformers(spec: ModelSpec, attention: Attention) -> tuple[Any, dict[str, Any]]:
    """A class of transformers: with a repository's weights, or with seeded random ones of a given configuration."""
    import transformers
    from transformers.initialization import no_init_weights

    name = spec.options["architecture"]
    architecture: Any = getattr(transformers, name, None)
    if not hasattr(architecture, "from_pretrained"):
        raise UserError(
            f"{spec.path}: architecture {name!r} is not a model class of transformers {transformers.__version__}; "
            "name one such as ViTForImageClassification"
        )
    transformers.utils.logging.disable_progress_bar()
    register_whole_masks()
    facts: dict[str, Any] = {"architecture": name, "transformers": transformers.__version__}
    fields = _fields(architecture, spec)
    implementation = _of_cache(attention) if spec.kv_cache else attention
    if spec.pretrained:
        model, origin = _pretrained(architecture, spec, {**fields, "attn_implementation": implementation})
        return model, facts | origin
    with no_init_weights() if spec.kv_cache else contextlib.nullcontext():  # _fill gives all of them
        model = architecture._from_config(architecture.config_class(**fields), attn_implementation=implementation)
    return model, facts | {"origin": _fill(model, spec)}


def _of_cache(attention: Attention) -> str:
    """What runs a cache of fixed size; `eager` stands for what that is checked against."""
    from inferprof.model import causal_lm

    return causal_lm.ATTENTION if attention == "sdpa" else "sdpa"


def _pretrained(architecture: Any, spec: ModelSpec, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The model with the weights of its repository or package. Raises UserError where they don't fill the model."""
    model_files = pretrained.weights(spec)
    try:
        model, info = architecture.from_pretrained(
            model_files.folder, local_files_only=True, use_safetensors=True, output_loading_info=True, **options
        )
    except (OSError, ValueError) as error:
        raise UserError(f"model {spec.name}: {model_files.origin}: {' '.join(str(error).split())}") from error
    if missing := sorted(info["missing_keys"]):
        raise UserError(
            f"model {spec.name}: {model_files.origin} has no weights for {missing[0]} and {len(missing) - 1} more, "
            f"which would be random; choose another architecture: in {spec.path}"
        )
    return model, {
        "origin": model_files.origin,
        "weights": {path.name: files.sha256(path) for path in model_files.weights},
    }


def _fields(architecture: Any, spec: ModelSpec) -> dict[str, Any]:
    """The fields of `config`; a misspelt one is refused, where transformers would ignore it."""
    config_class = architecture.config_class
    fields = dict(spec.options.get("config", {}))
    if config_class is None:
        if spec.pretrained and not fields:
            return fields
        raise UserError(f"{spec.path}: {architecture.__name__} is an Auto class; name the class itself")
    unknown = [name for name in fields if not hasattr(config_class(), name)]
    if unknown:
        raise UserError(f"{spec.path}: config: {config_class.__name__} has no field {', '.join(unknown)}")
    return fields


def _timm(spec: ModelSpec, attention: Attention) -> tuple[Any, dict[str, Any]]:
    """A model of timm, by its name there."""
    timm = _optional("timm", spec)
    timm.layers.set_fused_attn(attention == "sdpa")
    name = str(spec.options["architecture"])
    if not timm.is_model(name.split(".")[0]):
        raise UserError(f"{spec.path}: timm {timm.__version__} has no model {name}")
    try:
        model = timm.create_model(name, pretrained=spec.pretrained)
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"model {spec.name}: timm: {' '.join(str(error).split())}") from error
    origin = f"timm {name}" if spec.pretrained else _fill(model, spec)
    return model, {"architecture": name, "timm": timm.__version__, "origin": origin}


def _torchvision(spec: ModelSpec, attention: Attention) -> tuple[Any, dict[str, Any]]:
    """A model of torchvision, by its name there; pretrained means its default weights."""
    torchvision = _optional("torchvision", spec)
    name = str(spec.options["architecture"])
    if name not in torchvision.models.list_models():
        raise UserError(f"{spec.path}: torchvision {torchvision.__version__} has no model {name}")
    try:
        model = torchvision.models.get_model(name, weights="DEFAULT" if spec.pretrained else None)
    except OSError as error:
        raise UserError(f"model {spec.name}: torchvision: {' '.join(str(error).split())}") from error
    origin = f"torchvision {name} DEFAULT" if spec.pretrained else _fill(model, spec)
    return model, {"architecture": name, "torchvision": torchvision.__version__, "origin": origin}


def _python(spec: ModelSpec, attention: Attention) -> tuple[Any, dict[str, Any]]:
    """What the user's factory returns; with pretrained: false its weights are replaced by seeded random ones."""
    import torch

    model, origin = user_function(spec)(), f"python {spec.options['python']}"
    if spec.pretrained or not isinstance(model, torch.nn.Module):
        return model, {"origin": f"{origin}, seed {spec.seed}"}
    return model, {"origin": f"{origin}, {_fill(model, spec)}"}


def user_function(spec: ModelSpec, key: str = "python") -> Callable[..., Any]:
    """`module:function` of a key, the module beside the YAML file or importable."""
    module_name, _, name = str(spec.options[key]).partition(":")
    function: Callable[..., Any] | None = getattr(_user_module(module_name, spec), name, None)
    if not callable(function):
        raise UserError(f"{spec.path}: {module_name} has no function {name}")
    return function


def _user_module(name: str, spec: ModelSpec) -> Any:
    """A module from the file beside the YAML, which wins over an installed one of that name."""
    path = spec.path.parent.joinpath(*name.split(".")).with_suffix(".py")
    if not path.is_file():
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise UserError(f"{spec.path}: no module {name}: neither {path} nor installed ({error})") from None
    module_spec = importlib.util.spec_from_file_location(name, path)
    assert module_spec is not None and module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module  # dataclasses and pickling look their module up there
    module_spec.loader.exec_module(module)
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


def _fill(model: Any, spec: ModelSpec) -> str:
    """Fill a model with seeded random weights, the same under every version of torch; their origin, in words.

    The initialisers of torch and transformers draw other numbers from one version to the next, and then an ONNX file
    and the torch model of another machine would be two models. NumPy's RandomState is frozen (NEP 19). Matrices and
    kernels are normal with variance 1 / fan-in (LeCun), biases 0, scales 1. Of more than MANY weights DRAWN are drawn
    and repeated: to draw all of them would take longer than to measure them.
    """
    import torch

    draw = _numbers(spec.seed, sum(parameter.numel() for parameter in model.parameters()))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2:
                fan_in = parameter[0].numel()
                values = draw(parameter.numel()).reshape(tuple(parameter.shape)) / math.sqrt(fan_in)
                parameter.copy_(torch.from_numpy(values))
            elif parameter.ndim == 1:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
    return f"random weights, seed {spec.seed}"


def _numbers(seed: int, total: int) -> Callable[[int], np.ndarray[Any, Any]]:
    """Gives as many normal numbers as it is asked for, of `total`."""
    import numpy as np

    stream = np.random.RandomState(seed)
    if total <= MANY:
        return stream.standard_normal
    drawn = stream.standard_normal(DRAWN).astype(np.float32)
    given = 0

    def repeated(count: int) -> np.ndarray[Any, Any]:
        nonlocal given
        start, given = given, (given + count) % DRAWN
        return np.resize(np.roll(drawn, -start), count)

    return repeated


_SOURCES: Mapping[str, Callable[[ModelSpec, Attention], tuple[Any, dict[str, Any]]]] = {
    "transformers": _transformers,
    "timm": _timm,
    "torchvision": _torchvision,
    "python": _python,
}
