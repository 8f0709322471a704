"""GemLite's Triton kernels for weights of few bits in place of a torch model's linear layers: values of `quantize`.

https://github.com/mobiusml/gemlite; its kernels are chosen by Triton's autotuner (backends.triton_tuning).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from inferprof.backends import refusals, torch_quantize
from inferprof.case import Case
from inferprof.machine.hardware import Machine
from inferprof.plugins import Quantizer

if TYPE_CHECKING:
    import torch

PACKAGE: Final = "gemlite"
GROUP: Final = 128
"""Weights along a row that share a scale and a zero point."""


def pack(bits: int, module: torch.nn.Module) -> None:
    """Pack the linear layers of a module on the GPU, in fp16 or bf16, to so many bits, in place.

    A layer whose input is not a multiple of GROUP stays as it is.
    """
    import torch

    for name, child in module.named_children():
        if isinstance(child, torch.nn.Linear) and child.in_features % GROUP == 0:
            setattr(module, name, _packed(child, bits))
        else:
            pack(bits, child)


def forget_shipped() -> None:
    """Drop the choices that GemLite carries for this GPU and loads when it is imported."""
    import gemlite

    gemlite.reset_config()


def _packed(linear: torch.nn.Linear, bits: int) -> torch.nn.Module:
    from gemlite.helper import A16Wn

    quantized, scales, zeros = grouped(linear.weight.detach(), bits)
    packer = A16Wn(device=str(linear.weight.device), dtype=linear.weight.dtype)
    layer: torch.nn.Module = packer.from_weights(quantized, scales, zeros, bits, GROUP, linear.bias)
    return layer


def grouped(weight: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """[out, in] → levels as uint8 [out, in], scales and zero points [out, in / GROUP] in the weight's type.

    Round to nearest between a group's smallest and largest weight: weight ≈ (level - zero) · scale, the zero point
    unrounded as in HQQ (https://mobiusml.github.io/hqq_blog/).
    """
    import torch

    groups = weight.float().reshape(weight.shape[0], -1, GROUP)
    low, high = groups.amin(dim=2, keepdim=True), groups.amax(dim=2, keepdim=True)
    scales = ((high - low) / (2**bits - 1)).clamp(min=torch.finfo(torch.float16).tiny)
    zeros = -low / scales
    levels: Any = (groups / scales + zeros).round().clamp(0, 2**bits - 1)
    shape = (weight.shape[0], -1)
    return (
        levels.to(torch.uint8).reshape(weight.shape),
        scales.to(weight.dtype).reshape(shape),
        zeros.to(weight.dtype).reshape(shape),
    )


def refuses(case: Case, machine: Machine) -> str | None:
    """No GPU, no GemLite, or another precision than its kernels multiply in."""
    no_gpu = "no GPU, which GemLite's kernels are for" if machine.gpu is None else None
    return refusals.first(no_gpu, torch_quantize.refuses(case, machine, PACKAGE))


GEMLITE_A16W4 = Quantizer(
    name="gemlite_a16w4",
    title="4-bit weights in groups of 128, multiplied in half precision by GemLite's Triton kernels",
    apply=functools.partial(pack, 4),
    refuses=refuses,
)
GEMLITE_A16W8 = Quantizer(
    name="gemlite_a16w8",
    title="8-bit weights in groups of 128, multiplied in half precision by GemLite's Triton kernels",
    apply=functools.partial(pack, 8),
    refuses=refuses,
)
