"""GemLite's Triton kernels for weights of few bits in place of a torch model's linear layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

GROUP: Final = 128
"""Weights along a row that share a scale and a zero point."""


def pack(module: torch.nn.Module, bits: int) -> torch.nn.Module:
    """The module, which computes in fp16 or bf16 on the GPU, with its linear layers packed to `bits` in place.

    A layer whose input is not a multiple of GROUP stays as it is.
    """
    import torch

    for name, child in module.named_children():
        if isinstance(child, torch.nn.Linear) and child.in_features % GROUP == 0:
            setattr(module, name, _packed(child, bits))
        else:
            pack(child, bits)
    return module


def a16w4(module: torch.nn.Module) -> torch.nn.Module:
    """4-bit weights in groups of 128, activations as they are."""
    return pack(module, 4)


def a16w8(module: torch.nn.Module) -> torch.nn.Module:
    """8-bit weights in groups of 128, activations as they are."""
    return pack(module, 8)


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
