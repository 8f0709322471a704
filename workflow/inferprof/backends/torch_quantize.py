"""Quantization of torch models, and torchao's ways to do it: values of the torch backends' option `quantize`.

https://docs.pytorch.org/ao/stable/api_reference/api_ref_quantization.html
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from inferprof import registry
from inferprof.allowed import Allowed, Option
from inferprof.backends import refusals
from inferprof.case import QUANTIZE, Case, Variant
from inferprof.machine.hardware import Machine
from inferprof.plugins import Quantizer

if TYPE_CHECKING:
    import torch

OPTION: Final[Mapping[str, Option]] = {
    QUANTIZE: Option(
        "weights of a torch model are quantized, by the name of a quantizer: the next table",
        Allowed(
            lambda given: isinstance(given, str) and given in registry.quantizers(),
            "the name of a quantizer: docs/architecture.md",
        ),
    )
}
PACKAGE: Final = "torchao"
INSTALL: Final = "pip install --no-deps -r requirements/puzzles.txt"
HALF: Final = ("bf16", "fp16")
"""What torchao's kernels multiply with quantized weights."""
FP8_FROM: Final = (8, 9)
"""Compute capability whose tensor cores have FP8 (torchao's Float8DynamicActivationFloat8WeightConfig)."""


def asked(variant: Variant) -> Quantizer | None:
    """What the variant's option says. Raises UserError for a name that does not exist."""
    if QUANTIZE not in variant.options:
        return None
    quantizer: Quantizer = registry.look_up("quantizer", variant.text(QUANTIZE, ""), registry.quantizers())
    return quantizer


def refuses_variant(variant: Variant, case: Case, machine: Machine) -> str | None:
    """What speaks against the variant's quantizer on this machine. Raises UserError where there is no such one."""
    quantizer = asked(variant)
    return quantizer.refuses(case, machine) if quantizer else None


def quantize(module: torch.nn.Module, quantizer: Quantizer) -> None:
    """Quantize in place, and forget on the GPU what only the wider weights needed."""
    import torch

    quantizer.apply(module)
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def size(module: torch.nn.Module) -> int:
    """The bytes of a module's parameters and buffers; of a quantized one's what it is made of: numbers and scales."""
    return sum(map(_size, {*module.parameters(), *module.buffers()}))


def _size(tensor: torch.Tensor) -> int:
    """`__tensor_flatten__` names what a subclass is made of (torch.utils._python_dispatch.TensorWithFlatten)."""
    if not hasattr(tensor, "__tensor_flatten__"):
        return int(tensor.nbytes)
    return sum(_size(getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0])


def _apply(config: str, module: torch.nn.Module) -> None:
    """Quantize with a configuration of torchao's, in its defaults."""
    from torchao import quantization

    quantization.quantize_(module, getattr(quantization, config)())


def refuses(case: Case, machine: Machine, package: str = PACKAGE) -> str | None:
    """What speaks against quantizing at all: the package is missing, or the case is not in half precision."""
    missing = refusals.not_installed(machine, package)
    half = None if case.precision in HALF else f"weights are quantized from {' or '.join(HALF)}, not {case.precision}"
    return refusals.first(missing and f"{missing}: {INSTALL}", half)


def _refuses_fp8_products(case: Case, machine: Machine) -> str | None:
    """As `refuses`, and a machine without FP8 tensor cores, which torchao asserts."""
    first, needed = refuses(case, machine), refusals.dotted(FP8_FROM)
    if machine.gpu is None:
        return first or f"no GPU, whose FP8 tensor cores it needs (compute capability {needed})"
    capability = machine.gpu.compute_capability
    lacks = f"no FP8 tensor cores on compute capability {refusals.dotted(capability)}: needs {needed}"
    return first or (lacks if capability < FP8_FROM else None)


FLOAT8_WEIGHT_ONLY = Quantizer(
    name="float8_weight_only",
    title="FP8 weights (E4M3, a scale per row), multiplied in half precision",
    apply=functools.partial(_apply, "Float8WeightOnlyConfig"),
    refuses=refuses,
)
FLOAT8_DYNAMIC = Quantizer(
    name="float8_dynamic",
    title="FP8 weights and activations (E4M3, a scale per tensor, found at run time), multiplied in FP8",
    apply=functools.partial(_apply, "Float8DynamicActivationFloat8WeightConfig"),
    refuses=_refuses_fp8_products,
)
INT8_WEIGHT_ONLY = Quantizer(
    name="int8_weight_only",
    title="INT8 weights (a scale per row), multiplied in half precision",
    apply=functools.partial(_apply, "Int8WeightOnlyConfig"),
    refuses=refuses,
)
