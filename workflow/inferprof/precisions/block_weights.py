"""Weights in MXFP8 and NVFP4: the numbers that are stored, and their scales."""

from __future__ import annotations

from typing import Any

import numpy as np

from inferprof.precisions import block_kernels

Array = np.ndarray[Any, Any]
E8M0_BIAS = 127


def whole(reach: float) -> float:
    """NVFP4's scale of a tensor whose largest magnitude is `reach`."""
    return reach / (block_kernels.E2M1_MAX * block_kernels.E4M3_MAX) or block_kernels.NO_GLOBAL_SCALE


def nvfp4(array: Array, size: int) -> tuple[Array, Array, Array]:
    """A weight as 4-bit floats, the E4M3 scale of each block along the last axis, and the float32 scale of all."""
    import ml_dtypes

    of_all = np.float32(whole(float(np.abs(array).max(initial=0))))
    blocks = array.reshape(*array.shape[:-1], -1, size)
    exact = np.abs(blocks).max(axis=-1) / (block_kernels.E2M1_MAX * of_all)
    scales = np.minimum(exact, block_kernels.E4M3_MAX).astype(ml_dtypes.float8_e4m3fn)
    step = (scales.astype(np.float32) * of_all)[..., None]
    scaled = np.divide(blocks, step, out=np.zeros_like(blocks), where=step > 0)
    limit = block_kernels.E2M1_MAX
    stored = np.clip(scaled, -limit, limit).astype(ml_dtypes.float4_e2m1fn)
    return stored.reshape(array.shape), scales, np.asarray(of_all)


def mxfp8(array: Array, size: int) -> tuple[Array, Array]:
    """A weight as E4M3, and the exponent, with its bias, of each block's power of two along the last axis."""
    import ml_dtypes

    blocks = array.reshape(*array.shape[:-1], -1, size)
    amax = np.abs(blocks).max(axis=-1)
    mantissa, exponent = np.frexp(amax)
    exponent = exponent - block_kernels.E4M3_MAX_EXPONENT + (mantissa > block_kernels.E4M3_MAX_MANTISSA)
    exponent = np.where(amax > 0, np.clip(exponent, -E8M0_BIAS, E8M0_BIAS), 0)
    scaled = blocks / np.ldexp(np.float32(1), exponent)[..., None]
    limit = block_kernels.E4M3_MAX
    stored = np.clip(scaled, -limit, limit).astype(ml_dtypes.float8_e4m3fn)
    return stored.reshape(array.shape), (exponent + E8M0_BIAS).astype(np.uint8)
