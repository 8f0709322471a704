"""Settings of torch: a constant per option of a variant. What a variant leaves out stays torch's default.

Of a model with a KV cache the session of a shape has a cache of its own, behind weights that all share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from inferprof.backends import torch_graphs
from inferprof.case import Variant
from inferprof.errors import UserError
from inferprof.machine.hardware import Machine
from inferprof.model.model_spec import ModelSpec
from inferprof.plugins import OpenRequest, Session
from inferprof.runtime_option import RuntimeOption

if TYPE_CHECKING:
    import torch

BOTH: Final = frozenset({"torch_eager", "torch_compile"})
IMAGE_DIMS: Final = 4
"""Of an input that has a memory format: batch, channels, height, width."""
KERNELS: Final = ("flash", "mem_efficient", "math", "cudnn")
"""torch.backends.cuda has a switch `enable_{kernel}_sdp` for each."""


def no_image(spec: ModelSpec, machine: Machine) -> str | None:
    """A memory format orders the channels of images."""
    images = any(len(item.dims) == IMAGE_DIMS for item in spec.inputs)
    return None if images else f"{spec.name} has no input of four dimensions, whose channels could come last"


def no_such_kernel(spec: ModelSpec, machine: Machine) -> str | None:
    """On a CPU torch has no more than its default."""
    return "no GPU: torch chooses among attention kernels only there" if machine.gpu is None else None


def no_cache(spec: ModelSpec, machine: Machine) -> str | None:
    """Only a model that generates has keys and values of earlier tokens."""
    return None if spec.kv_cache else f"{spec.name} has no KV cache: its description lacks kv_cache: true"


MEMORY_FORMAT: Final = RuntimeOption(
    name="memory_format",
    meaning="torch: images and the weights of convolutions are `contiguous` (default) or `channels_last`",
    backends=BOTH,
    key="memory_format",
    values={"contiguous": "contiguous_format", "channels_last": "channels_last"},
    source="https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",
    tries=("channels_last",),
    refuses=no_image,
)
SDPA: Final = RuntimeOption(
    name="sdpa",
    meaning="torch: the only kernel that scaled_dot_product_attention may take: "
    "`flash`, `mem_efficient`, `math`, `cudnn`, or `any` (default)",
    backends=BOTH,
    key="enable_{}_sdp",
    values={"any": "", **{kernel: kernel for kernel in KERNELS}},
    source="https://docs.pytorch.org/docs/stable/backends.html",
    tries=("flash", "mem_efficient", "cudnn"),
    refuses=no_such_kernel,
)
FREEZING: Final = RuntimeOption(
    name="freezing",
    meaning="torch.compile takes weights for constants and folds what follows from them; off unless given",
    backends=frozenset({"torch_compile"}),
    key="torch._inductor.config.freezing",
    values={False: False, True: True},
    source="https://github.com/pytorch/pytorch/blob/main/torch/_inductor/config.py",
    tries=(True,),
)

KV_CACHE: Final = RuntimeOption(
    name="kv_cache",
    meaning="torch: the KV cache has its full length from the beginning and is written in place (`static`, default), "
    "or grows by concatenation in each step (`dynamic`), as transformers has it unless told otherwise",
    backends=BOTH,
    key="cache_implementation",
    values={"static": "static", "dynamic": "dynamic"},
    source="https://huggingface.co/docs/transformers/kv_cache",
    refuses=no_cache,
)


def apply(variant: Variant) -> None:
    """Set what the variant says of the process."""
    import torch

    if kernel := SDPA.given(variant):
        for each in KERNELS:
            getattr(torch.backends.cuda, SDPA.key.format(each))(each == kernel)
    if (freezing := FREEZING.given(variant)) is not None:
        import torch._inductor.config

        torch._inductor.config.freezing = freezing


def formatted(module: torch.nn.Module, variant: Variant) -> torch.nn.Module:
    """A module whose inputs and weights of four dimensions have the variant's memory format."""
    import torch

    name = MEMORY_FORMAT.given(variant)
    if name is None:
        return module
    memory_format = getattr(torch, name)
    inner = module.to(memory_format=memory_format)

    class Formatted(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = inner

        def forward(self, *inputs: torch.Tensor) -> Any:
            return self.module(*(x.to(memory_format=memory_format) if x.ndim == IMAGE_DIMS else x for x in inputs))

    return Formatted()


def stepped(module: torch.nn.Module, request: OpenRequest) -> torch.nn.Module:
    """A module with a cache of the request's shape; one that has none as it is. Raises UserError for `graphs`."""
    if not request.spec.kv_cache:
        return module
    if torch_graphs.COUNT in request.variant.options:
        raise UserError(
            f"variant {request.variant.name}: {torch_graphs.COUNT}: a KV cache has one batch size; leave it out"
        )
    from inferprof.model import causal_lm

    grows = KV_CACHE.given(request.variant) == "dynamic"
    return causal_lm.Step(module, request.spec, request.shape, grows=grows)


def operation(module: torch.nn.Module, weights: int) -> dict[str, Any] | None:
    """The part `operation` of the record; None of a model without a cache."""
    describe = getattr(module, "operation", None)
    return describe(weights) if describe else None


def operation_of(session: Session) -> dict[str, Any] | None:
    """The same of a torch backend's session."""
    part: dict[str, Any] | None = getattr(session, "operation", None)
    return part
