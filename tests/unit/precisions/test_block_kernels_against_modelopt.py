"""The block kernels against what ModelOpt computes on any machine: the packed weights of its ONNX exporters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("modelopt")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the warnings are ModelOpt's and torch's

from inferprof.precisions import block_kernels  # noqa: E402

SEEDS = range(4)


def weights(seed: int) -> Any:
    """[32, 64], over many binades, with a row of zeros."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(32, 64, generator=generator) * torch.exp2(torch.randn(32, 1, generator=generator) * 3)
    values[3] = 0
    return values


@pytest.mark.parametrize("seed", SEEDS)
def test_mxfp8_is_what_the_exporter_packs(seed: int) -> None:
    from modelopt.onnx.quantization.qdq_utils import _cast_fp8
    from modelopt.onnx.quantization.quant_utils import compute_e8m0, get_amax

    x = weights(seed)
    array = x.numpy()
    exponents = compute_e8m0(get_amax(array, -1, 32), array.shape, -1, 32).astype(np.float32)
    scales = np.exp2(np.repeat(exponents, 32, axis=-1) - 127)
    packed = torch.from_numpy(_cast_fp8(array / scales)).view(torch.float8_e4m3fn).float()
    assert torch.equal(block_kernels.mxfp8(x), packed * torch.from_numpy(scales))


@pytest.mark.parametrize("seed", SEEDS)
def test_nvfp4_is_what_modelopt_packs(seed: int) -> None:
    from modelopt.torch.quantization.qtensor import NVFP4QTensor

    x = weights(seed)
    packed, scales, global_scale = NVFP4QTensor.quantize(x, 16)
    unpacked = packed.dequantize(dtype=torch.float32, scale=scales, double_scale=global_scale, block_sizes={-1: 16})
    ours = block_kernels.nvfp4(x, x.abs().max())
    close = torch.isclose(ours, unpacked, rtol=1e-6, atol=0)
    assert bool(close.all()), f"{int((~close).sum())} of {close.numel()} differ"
