"""The plain PyTorch block kernels, on the CPU as they are used, against ModelOpt's CUDA ones where these could part.

ModelOpt's kernel for MXFP8, and a second one for NVFP4, are compiled on first use, which needs nvcc; NVFP4's Triton
kernel (compute capability 8.9 and later) does not. A comparison without its kernel is skipped, and says why.

MXFP8 is compared bit for bit (−0 counts as 0). NVFP4's kernels divide inexactly: Triton's `/` is PTX's div.full.f32,
and the extension multiplies by a rounded reciprocal. Both may be wrong by DIVISION_ERROR, so a quotient that near to
a tie may round to either side; everywhere else the comparison is bit for bit with Triton's, to the last place with
the extension's. Where results differ, a test says how many and which the first of them is.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("modelopt")

from inferprof.precisions import block_kernels  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # ModelOpt's and Triton's own
]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
DIVISION_ERROR = 2.0**-22
"""Relative: two units in the last place of a float32."""
MOST_UNDECIDED = 0.02
"""Share of values that may lie at a tie: 16-bit inputs are at one now and then, float32 ones hardly ever."""
E2M1_TIES = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]
SEEDS = range(3)


def normal(*shape: int, seed: int, scale: float = 1.0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def spread(*shape: int, seed: int) -> Any:
    """Values over many binades, so that the blocks of a tensor have very different scales."""
    return normal(*shape, seed=seed) * torch.exp2(normal(*shape[:-1], 1, seed=seed + 100) * 6)


def with_values(values: list[float], amax: float, width: int) -> Any:
    """One row of blocks: `values` and their negatives, and `amax` in the last place of every block."""
    x = torch.zeros(1, width)
    x[0, : len(values)] = torch.tensor(values)
    x = torch.cat([x, -x])
    x[:, width - 1] = amax
    return x


INPUTS: dict[str, Callable[[], Any]] = {
    **{f"normal {seed}": functools.partial(normal, 64, 256, seed=seed) for seed in SEEDS},
    **{f"many binades {seed}": functools.partial(spread, 64, 256, seed=seed) for seed in SEEDS},
    "three dimensions": lambda: normal(2, 197, 192, seed=7),
    "small": lambda: normal(16, 64, seed=8, scale=2.0**-12),
    "large": lambda: normal(16, 64, seed=9, scale=2.0**12),
    "ties of E2M1": lambda: with_values(E2M1_TIES, 6.0, 16),
    "ties of E4M3": lambda: with_values([1.0625, 1.1875, 17.0, 19.0, 2.0**-10, 3 * 2.0**-10], 448.0, 32),
    "amax at a power of two": lambda: with_values([1.0, 100.0], 448.0 * 2.0**-3, 32),
    "amax just above": lambda: with_values([1.0, 100.0], 449.0, 32),
    "a block of zeros": lambda: torch.cat([torch.zeros(4, 32), normal(4, 32, seed=10)], dim=1),
    "all zeros": lambda: torch.zeros(8, 64),
    "odd last dimension": lambda: normal(8, 77, seed=11),
    "one column": lambda: normal(8, 1, seed=12),
    "infinity": lambda: with_values([float("inf"), 1.0, 2.0], 6.0, 32),
}


def modelopt_mxfp8(x: Any) -> Any:
    """ModelOpt's CUDA extension; skips where it doesn't compile."""
    extension = cuda_extension()
    types = extension.Types
    return extension.fused_amax_convert(x, 32, types.E4M3, types.E8M0, None)


def modelopt_nvfp4_extension(x: Any) -> Any:
    extension = cuda_extension()
    types = extension.Types
    return extension.fused_amax_convert(x, 16, types.E2M1, types.E4M3, global_amax(x))


def modelopt_nvfp4_triton(x: Any) -> Any:
    from modelopt.torch.kernels.quantization import gemm

    if not hasattr(gemm, "fp4_fake_quant_block"):
        pytest.skip("ModelOpt's Triton kernel needs compute capability 8.9 and Triton")
    return gemm.fp4_fake_quant_block(x, global_amax(x))


def cuda_extension() -> Any:
    from modelopt.torch.quantization import extensions

    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc to compile ModelOpt's CUDA extension with")
    extension = extensions.get_cuda_ext_mx()
    if extension is None:
        pytest.skip("ModelOpt's CUDA extension does not compile here")
    return extension


def global_amax(x: Any) -> Any:
    """The largest finite magnitude, in float32, as max calibration finds it."""
    return torch.where(x.isfinite(), x, 0).abs().amax().float()


def differences(ours: Any, theirs: Any, x: Any) -> str:
    """`` where two results are equal; else how many values differ, by how much at most, and the first of them."""
    ours, theirs, x = ours.float().cpu(), theirs.float().cpu(), x.float().cpu()
    different = ~((ours == theirs) | (ours.isnan() & theirs.isnan()))
    if not different.any():
        return ""
    first = different.nonzero()[0].tolist()
    at = tuple(first)
    worst = (ours - theirs)[different].abs().max().item()
    return (
        f"{int(different.sum())} of {different.numel()} values differ, by at most {worst:g}; "
        f"first at {first}: {x[at].item()!r} became {ours[at].item()!r}, ModelOpt's {theirs[at].item()!r}"
    )


def block_quotients(x: Any, amax: Any) -> tuple[Any, Any, Any]:
    """The blocks of x; of each block, what its scale is before it is rounded to E4M3; and the scale of the tensor."""
    blocks = block_kernels._blocks(x, 16)
    global_scale = torch.where(amax > 0, amax * (1 / 2688), block_kernels.NO_GLOBAL_SCALE)
    return blocks, block_kernels._block_amax(blocks) / (6 * global_scale), global_scale


def spread_over(of_blocks: Any, x: Any) -> Any:
    """A value per block as a value per element of x."""
    return of_blocks.expand(*of_blocks.shape[:-1], 16).flatten(-2)[..., : x.shape[-1]]


def undecided(x: Any, amax: Any) -> Any:
    """Which values an error of DIVISION_ERROR in the quotients could round to another E2M1 value or block scale."""
    low, high = 1 - DIVISION_ERROR, 1 + DIVISION_ERROR
    blocks, quotient, global_scale = block_quotients(x, amax)
    of_blocks = block_kernels._to_e4m3(quotient * low) != block_kernels._to_e4m3(quotient * high)
    scale = block_kernels._to_e4m3(quotient) * global_scale
    of_blocks |= (scale / block_kernels.SMALLEST_BLOCK_SCALE - 1).abs() < DIVISION_ERROR
    quotient = blocks / torch.where(scale >= block_kernels.SMALLEST_BLOCK_SCALE, scale, 1.0)
    of_values = block_kernels._to_e2m1(quotient * low) != block_kernels._to_e2m1(quotient * high)
    return spread_over(of_blocks, x) | of_values.flatten(-2)[..., : x.shape[-1]]


def vanishing(x: Any, amax: Any) -> Any:
    """Which values lie in a block whose scale E4M3 cannot hold: beside the rest of the tensor it is nothing."""
    _, quotient, _ = block_quotients(x, amax)
    return spread_over(block_kernels._to_e4m3(quotient) == 0, x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", INPUTS)
def test_mxfp8_is_modelopts_bit_for_bit(name: str, dtype: Any) -> None:
    x = INPUTS[name]().to(dtype)
    assert differences(block_kernels.mxfp8(x), modelopt_mxfp8(x.cuda()), x) == ""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", INPUTS)
def test_nvfp4_is_modelopts_triton_kernel_bit_for_bit_but_at_ties(name: str, dtype: Any) -> None:
    x = INPUTS[name]().to(dtype)
    amax = global_amax(x)
    ours, theirs, tie = block_kernels.nvfp4(x, amax), modelopt_nvfp4_triton(x.cuda()).cpu(), undecided(x, amax)
    assert differences(ours.where(~tie, 0), theirs.where(~tie, 0), x) == ""
    assert tie.float().mean() <= MOST_UNDECIDED or name.startswith(("ties", "amax"))


@pytest.mark.parametrize("name", [name for name in INPUTS if name.startswith(("normal", "many", "three", "odd"))])
def test_nvfp4_and_modelopts_cuda_extension_differ_in_the_last_place_but_at_ties(name: str) -> None:
    """The extension computes a block's scale in double precision: the product with it may round the other way.

    A block whose scale vanishes is all zeros to the extension; Triton's kernel and ours round it with a scale of 1.
    """
    x = INPUTS[name]()
    amax = global_amax(x)
    ours, theirs = block_kernels.nvfp4(x, amax), modelopt_nvfp4_extension(x.cuda()).cpu()
    gone, tie = vanishing(x, amax), undecided(x, amax)
    assert not theirs[gone].any()
    ours, theirs = ours.where(~gone & ~tie, 0), theirs.where(~gone & ~tie, 0)
    assert torch.allclose(ours, theirs, rtol=DIVISION_ERROR, atol=0), differences(ours, theirs, x)
    assert tie.float().mean() <= MOST_UNDECIDED


@pytest.mark.parametrize("name", INPUTS)
def test_the_kernels_give_the_same_on_the_cpu_and_on_the_gpu(name: str) -> None:
    x = INPUTS[name]()
    amax = global_amax(x)
    assert differences(block_kernels.mxfp8(x), block_kernels.mxfp8(x.cuda()), x) == ""
    assert differences(block_kernels.nvfp4(x, amax), block_kernels.nvfp4(x.cuda(), amax.cuda()), x) == ""


def test_nan_stays_nan_in_mxfp8_as_in_modelopts_kernel() -> None:
    x = normal(4, 64, seed=13)
    x[1, 5] = float("nan")
    ours = block_kernels.mxfp8(x)
    assert int(ours.isnan().sum()) == 1
    assert differences(ours, modelopt_mxfp8(x.cuda()), x) == ""


def test_nan_stays_nan_in_nvfp4_where_modelopts_kernel_writes_the_largest_magnitude() -> None:
    """The one difference that is meant: a NaN must not vanish from an accuracy run."""
    x = normal(4, 64, seed=14)
    x[1, 5] = float("nan")
    ours, theirs = block_kernels.nvfp4(x, global_amax(x)), modelopt_nvfp4_triton(x.cuda()).cpu()
    assert bool(ours[1, 5].isnan()) and bool(theirs[1, 5].isfinite())
    ours[1, 5] = theirs[1, 5]
    assert differences(ours, theirs, x) == ""


def test_modelopt_calls_its_own_kernels_where_there_is_cuda() -> None:
    assert block_kernels.needed("fp4_fake_quant_block") is None or torch.cuda.get_device_capability() < (8, 9)
