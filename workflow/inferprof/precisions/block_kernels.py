"""Block fake quantization in plain PyTorch, for machines with no CUDA, and weights as they are stored.

ModelOpt computes MXFP8 and NVFP4 with kernels that exist for CUDA alone. These functions do the same arithmetic on
any device, and `register` puts them behind ModelOpt's own extension point, `register_quant_backend`. They follow
ModelOpt 0.47: MXFP8 `kernels/quantization/gemm/tensor_quant_mx.cu`, NVFP4 `gemm/fp4_kernel_hopper.py`.

Scalars stay Python numbers: a tensor constant inside a kernel cannot be traced by the ONNX exporter. None of them is
divided by: PyTorch divides by a number on the CPU and multiplies by its reciprocal on a GPU, which is not the same.

What remains of a difference: ModelOpt's NVFP4 kernel is Triton, whose `/` is PTX's div.full.f32, wrong by 2 units in
the last place at most. A quotient that near to a tie may round to the neighbour there; here division is exact.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from inferprof.model.block_emulation import E2M1_MAX, E4M3_MAX

if TYPE_CHECKING:
    import torch

Array = np.ndarray[Any, Any]
BACKEND = "inferprof_cpu"
FLOAT32_MAX = 3.4028234663852886e38
E4M3_MAX_MANTISSA, E4M3_MAX_EXPONENT = 0.875, 9
"""448 as frexp gives it: 0.875 × 2^9."""
E8M0_MIN_EXPONENT, E8M0_MAX_EXPONENT = -127, 127
NO_GLOBAL_SCALE = 1e-12
"""NVFP4's global scale where the tensor's amax is 0."""
SMALLEST_BLOCK_SCALE = 1e-5
"""A smaller scale of an NVFP4 block counts as 1: the block becomes zero."""


def mxfp8(x: torch.Tensor, block_size: int = 32) -> torch.Tensor:
    """E4M3 values with one power of two per block of the last dimension; shape and dtype are kept.

    scale = 2^ceil(log2(amax / 448)), 1 for a block of zeros. NaN stays NaN; an infinity saturates to 448 scales, and
    its block's scale is that of the largest float32.
    """
    import torch

    blocks = _blocks(x, block_size)
    amax = _block_amax(blocks).clamp(max=FLOAT32_MAX)
    mantissa, exponent = torch.frexp(amax)
    exponent = exponent - E4M3_MAX_EXPONENT + (mantissa > E4M3_MAX_MANTISSA).int()
    exponent = exponent.clamp(E8M0_MIN_EXPONENT, E8M0_MAX_EXPONENT)
    scale = torch.where(amax > 0, torch.ldexp(torch.ones_like(amax), exponent), 1.0)
    return _unblocked(_to_e4m3(blocks / scale) * scale, x)


def nvfp4(x: torch.Tensor, global_amax: torch.Tensor, block_size: int = 16) -> torch.Tensor:
    """E2M1 values with an E4M3 scale per block and a float32 scale per tensor; shape and dtype are kept.

    global scale = global amax / (6 × 448); block scale = E4M3(block amax / (6 × global scale)) × global scale.
    ±infinity becomes ±6 scales. NaN stays NaN, so that a collapse is seen; E2M1 has none, and ModelOpt's kernel
    writes −6 scales for it.
    """
    import torch

    blocks = _blocks(x, block_size)
    global_scale = global_amax.float().amax() * (1 / (E2M1_MAX * E4M3_MAX))
    global_scale = torch.where(global_scale > 0, global_scale, NO_GLOBAL_SCALE)
    scale = _to_e4m3(_block_amax(blocks) / (E2M1_MAX * global_scale)) * global_scale
    scale = torch.where(scale >= SMALLEST_BLOCK_SCALE, scale, 1.0)
    return _unblocked(_to_e2m1(blocks / scale) * scale, x)


def _blocks(x: torch.Tensor, size: int) -> torch.Tensor:
    """The last dimension as (blocks, size) in float32; a last block that isn't full is padded with zeros."""
    import torch

    padded = torch.nn.functional.pad(x.float(), (0, -x.shape[-1] % size))
    return padded.unflatten(-1, (-1, size))


def _unblocked(blocks: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The inverse of `_blocks`, in the shape and dtype of `like`."""
    return blocks.flatten(-2)[..., : like.shape[-1]].to(like.dtype)


def _block_amax(blocks: torch.Tensor) -> torch.Tensor:
    """The largest magnitude of each block, NaN left out as by CUDA's fmaxf."""
    return blocks.abs().nan_to_num(nan=0.0, posinf=float("inf")).amax(dim=-1, keepdim=True)


def _to_e4m3(x: torch.Tensor) -> torch.Tensor:
    """Round to E4M3 and back, to nearest even and saturating; PyTorch's own cast makes NaN of what is over 448."""
    import torch

    return x.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).float()


def _to_e2m1(x: torch.Tensor) -> torch.Tensor:
    """Round to ±0, 0.5, 1, 1.5, 2, 3, 4, 6: to nearest even and saturating."""
    import torch

    magnitude = x.abs()
    step = torch.where(magnitude < 2, 0.5, torch.where(magnitude < 4, 1.0, 2.0))
    return x.div(step).round_().mul_(step).clamp_(-E2M1_MAX, E2M1_MAX)


def needed(ready_kernel: str | None) -> str | None:
    """Why ModelOpt's own kernels for a format, of which one may be compiled already, cannot run here; None: they can.

    MXFP8, and NVFP4 before compute capability 8.9, are compiled on first use, which needs CUDA's nvcc.
    """
    import torch
    from modelopt.torch.kernels.quantization import gemm
    from modelopt.torch.quantization import extensions

    if not torch.cuda.is_available():
        return "no CUDA device"
    if ready_kernel and hasattr(gemm, ready_kernel):
        return None
    return None if extensions.get_cuda_ext_mx() is not None else "ModelOpt's CUDA extension does not compile here"


def register() -> str:
    """Make the kernels known to ModelOpt; returns the name for `backend` in a quantizer's configuration."""
    from modelopt.torch.quantization.nn import is_registered_quant_backend, register_quant_backend

    if not is_registered_quant_backend(BACKEND):
        register_quant_backend(BACKEND, _quantize)
    return BACKEND


def _quantize(x: torch.Tensor, quantizer: Any) -> torch.Tensor:
    """ModelOpt's entry point: what TensorQuantizer._fake_quantize does for dynamic blocks, with these kernels."""
    amax = None if quantizer.is_mx_format else quantizer._get_amax(x)
    sizes = quantizer.block_sizes
    block_size = sizes.get(-1) or sizes[x.dim() - 1]
    quantized: torch.Tensor = _function().apply(
        x,
        block_size,
        amax,
        None,
        quantizer.num_bits,
        sizes["scale_bits"],
        getattr(quantizer, "_trt_high_precision_dtype", None),
        getattr(quantizer, "_onnx_quantizer_type", None),
        True,
    )
    return quantized


@functools.cache
def _function() -> Any:
    """ModelOpt's autograd function with another forward; its `symbolic`, which writes the ONNX nodes, stays."""
    from modelopt.torch.quantization.tensor_quant import DynamicBlockQuantizationFunction

    class BlockQuantization(DynamicBlockQuantizationFunction):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, inputs: Any, block_size: int, amax: Any, bias: None, *rest: Any) -> Any:
            kernel: Callable[..., Any] = mxfp8 if amax is None else functools.partial(nvfp4, global_amax=amax)
            return kernel(inputs, block_size=block_size)

    return BlockQuantization


# --- weights as they are stored, with their scales -------------------------------------------------------------


def whole_scale(reach: float) -> float:
    """NVFP4's scale of a tensor whose largest magnitude is `reach`."""
    return reach / (E2M1_MAX * E4M3_MAX) or NO_GLOBAL_SCALE


def nvfp4_weight(array: Array, size: int) -> tuple[Array, Array, Array]:
    """A weight as 4-bit floats, the E4M3 scale of each block along the last axis, and the float32 scale of all."""
    import ml_dtypes

    of_all = np.float32(whole_scale(float(np.abs(array).max(initial=0))))
    blocks = array.reshape(*array.shape[:-1], -1, size)
    exact = np.abs(blocks).max(axis=-1) / (E2M1_MAX * of_all)
    scales = np.minimum(exact, E4M3_MAX).astype(ml_dtypes.float8_e4m3fn)
    step = (scales.astype(np.float32) * of_all)[..., None]
    scaled = np.divide(blocks, step, out=np.zeros_like(blocks), where=step > 0)
    stored = np.clip(scaled, -E2M1_MAX, E2M1_MAX).astype(ml_dtypes.float4_e2m1fn)
    return stored.reshape(array.shape), scales, np.asarray(of_all)


def mxfp8_weight(array: Array, size: int) -> tuple[Array, Array]:
    """A weight as E4M3, and the exponent, with its bias, of each block's power of two along the last axis."""
    import ml_dtypes

    blocks = array.reshape(*array.shape[:-1], -1, size)
    amax = np.abs(blocks).max(axis=-1)
    mantissa, exponent = np.frexp(amax)
    exponent = exponent - E4M3_MAX_EXPONENT + (mantissa > E4M3_MAX_MANTISSA)
    exponent = np.where(amax > 0, np.clip(exponent, E8M0_MIN_EXPONENT, E8M0_MAX_EXPONENT), 0)
    scaled = blocks / np.ldexp(np.float32(1), exponent)[..., None]
    stored = np.clip(scaled, -E4M3_MAX, E4M3_MAX).astype(ml_dtypes.float8_e4m3fn)
    return stored.reshape(array.shape), (exponent - E8M0_MIN_EXPONENT).astype(np.uint8)
