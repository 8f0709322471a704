from __future__ import annotations

import pytest

from inferprof.backends.torch_gemlite import GROUP, grouped, pack

pytestmark = pytest.mark.slow  # torch


def test_weights_on_evenly_spaced_levels_are_held_without_loss() -> None:
    torch = pytest.importorskip("torch")
    levels = torch.arange(2 * 2 * GROUP).reshape(4, GROUP) % 16
    weight = ((levels - 7.5) * 2.0**-8).to(torch.float16)
    quantized, scales, zeros = grouped(weight, 4)
    assert quantized.dtype == torch.uint8
    assert torch.equal(quantized, levels.to(torch.uint8))
    assert scales.tolist() == [[2.0**-8]] * 4
    assert zeros.tolist() == [[7.5]] * 4


def test_any_weight_is_held_to_half_a_level() -> None:
    torch = pytest.importorskip("torch")
    weight = torch.linspace(-1.0, 2.0, 3 * 2 * GROUP).reshape(3, 2 * GROUP)
    quantized, scales, zeros = grouped(weight, 8)
    assert (quantized.shape, scales.shape, zeros.shape) == ((3, 2 * GROUP), (3, 2), (3, 2))
    per_weight = scales.repeat_interleave(GROUP, dim=1)
    held = (quantized - zeros.repeat_interleave(GROUP, dim=1)) * per_weight
    assert ((held - weight).abs() <= 0.501 * per_weight).all()


def test_a_group_of_equal_weights_is_held() -> None:
    torch = pytest.importorskip("torch")
    quantized, scales, zeros = grouped(torch.zeros(1, GROUP), 4)
    assert ((quantized - zeros) * scales == 0).all()


def test_layers_whose_inputs_make_no_whole_groups_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from inferprof.backends import torch_gemlite

    monkeypatch.setattr(torch_gemlite, "_packed", lambda linear, bits: torch.nn.Identity())
    inner = torch.nn.Sequential(torch.nn.Linear(GROUP, 8), torch.nn.ReLU())
    module = torch.nn.Sequential(inner, torch.nn.Linear(GROUP + 1, 8))
    pack(4, module)
    kinds = [type(one).__name__ for one in module.modules()]
    assert kinds == ["Sequential", "Sequential", "Identity", "ReLU", "Linear"]
