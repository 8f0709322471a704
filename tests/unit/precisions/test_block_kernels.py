"""Block fake quantization in plain PyTorch: exact values of both formats."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from inferprof.precisions import block_kernels  # noqa: E402

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def nvfp4_block(values: list[float]) -> list[float]:
    """One block of 16 whose scale is exactly 1: its amax is 6 and the tensor's is 6 × 448."""
    x = torch.zeros(1, 16)
    x[0, : len(values)] = torch.tensor(values)
    x[0, 15] = 6.0
    found: list[float] = block_kernels.nvfp4(x, torch.tensor(6.0 * 448.0))[0, : len(values)].tolist()
    return found


def mxfp8_block(values: list[float], amax: float = 448.0) -> list[float]:
    """One block of 32 with a given amax; with 448 its scale is 1."""
    x = torch.zeros(1, 32)
    x[0, : len(values)] = torch.tensor(values)
    x[0, 31] = amax
    found: list[float] = block_kernels.mxfp8(x)[0, : len(values)].tolist()
    return found


def test_nvfp4_keeps_what_e2m1_can_represent() -> None:
    assert nvfp4_block(E2M1) == E2M1
    assert nvfp4_block([-value for value in E2M1]) == [-value for value in E2M1]


def test_nvfp4_rounds_ties_to_even() -> None:
    assert nvfp4_block([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]) == [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0]


def test_nvfp4_rounds_to_the_nearest_beside_a_tie() -> None:
    assert nvfp4_block([0.26, 0.74, 1.26, 1.74, 2.51, 3.49, 5.01]) == [0.5, 0.5, 1.5, 1.5, 3.0, 3.0, 6.0]


def test_nvfp4_quantizes_the_block_scale_to_e4m3() -> None:
    # amax 6.6 / 6 = 1.1, whose neighbours in E4M3 are 1.0 and 1.125: 1.125 is nearer, and 6.6 / 1.125 rounds to 6.
    x = torch.zeros(1, 16)
    x[0, 0] = 6.6
    assert block_kernels.nvfp4(x, torch.tensor(6.0 * 448.0))[0, 0].item() == 6.75


def test_nvfp4_turns_a_tensor_without_amax_into_zeros() -> None:
    assert block_kernels.nvfp4(torch.zeros(2, 16), torch.tensor(0.0)).eq(0).all()


def test_nvfp4_saturates_infinity_and_keeps_nan() -> None:
    x = torch.zeros(1, 16)
    x[0, :3] = torch.tensor([float("inf"), float("-inf"), float("nan")])
    found = block_kernels.nvfp4(x, torch.tensor(6.0))[0]
    assert found[:2].tolist() == [6.0, -6.0]
    assert found[2].isnan()
    assert found[3:].eq(0).all()


def test_mxfp8_keeps_what_e4m3_can_represent() -> None:
    assert mxfp8_block([0.0, 2.0**-9, 0.875, 1.0, 1.125, 240.0, -448.0]) == [
        0.0, 2.0**-9, 0.875, 1.0, 1.125, 240.0, -448.0,
    ]  # fmt: skip


def test_mxfp8_rounds_ties_to_even() -> None:
    assert mxfp8_block([1.0625, 1.1875, 2.0**-10, 3 * 2.0**-10]) == [1.0, 1.25, 0.0, 2.0**-8]


def test_mxfp8_scales_by_the_next_power_of_two() -> None:
    # Just above 448 the scale is 2: 3 becomes 1.5 × 2, and what was exact at a step of 0.25 now has one of 0.5.
    assert mxfp8_block([3.0, 3.25], amax=449.0) == [3.0, 3.25]
    assert mxfp8_block([449.0], amax=449.0) == [448.0]
    assert mxfp8_block([448.0 * 2.0**-20], amax=448.0 * 2.0**-20) == [448.0 * 2.0**-20]


def test_mxfp8_leaves_a_block_of_zeros_at_zero() -> None:
    assert block_kernels.mxfp8(torch.zeros(3, 32)).eq(0).all()


def test_mxfp8_keeps_nan_apart_from_its_block() -> None:
    found = mxfp8_block([float("nan"), 1.0])
    assert found[0] != found[0]
    assert found[1] == 1.0


@pytest.mark.parametrize("width", [1, 15, 16, 17, 33, 63])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_last_block_that_is_not_full_counts_as_padded_with_zeros(width: int, dtype: Any) -> None:
    x = torch.randn(3, 5, width, generator=torch.Generator().manual_seed(width)).to(dtype)
    padded = torch.nn.functional.pad(x, (0, 64 - width))
    amax = x.abs().max()
    for found, full in (
        (block_kernels.mxfp8(x), block_kernels.mxfp8(padded)),
        (block_kernels.nvfp4(x, amax), block_kernels.nvfp4(padded, amax)),
    ):
        assert (found.shape, found.dtype) == (x.shape, dtype)
        assert torch.equal(found, full[..., :width])
