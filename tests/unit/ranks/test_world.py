"""What the option `parallel` may say, and who cannot do it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import mentions, naming

from inferprof import config, targets
from inferprof.backends import torch_ranks
from inferprof.case import Shape, Variant
from inferprof.devices.cpu import CpuDevice
from inferprof.errors import UserError
from inferprof.flag_values import option
from inferprof.machine.hardware import Gpu, Machine
from inferprof.model.model_spec import InputSpec, ModelSpec
from inferprof.plugins import OpenRequest
from inferprof.ranks.world import World, refuses

GPU = Gpu("NVIDIA H200", (9, 0), 140 << 30, "GPU-0", "580")
TENSOR = Variant("tp2", {"parallel": {"tensor": 2}})


@pytest.mark.parametrize("kind", ["tensor", "sequence", "pipeline", "data"])
def test_a_case_is_divided_in_one_way_over_some_ranks(kind: str) -> None:
    assert World.of(Variant("v", {"parallel": {kind: 4}})) == World(kind, 4)


def test_without_the_option_a_case_is_one_process() -> None:
    assert World.of(Variant()) is None


@pytest.mark.parametrize(
    "given",
    [
        *(2, "tensor", {}, {"tensor": 0}, {"tensor": 65}, {"tensor": True}, {"tensor": "2"}, {"expert": 2}),
        *({"tensor": 2, "data": 2}, ["tensor", 2]),
    ],
)
def test_anything_else_is_a_user_error(given: Any) -> None:
    with pytest.raises(UserError, match=r"^variant v: parallel: .*\{tensor: 2\}$"):
        World.of(Variant("v", {"parallel": given}))


def test_graphs_of_several_batch_sizes_are_measured_in_one_process() -> None:
    with pytest.raises(UserError, match=r"^variant v: graphs: "):
        World.of(Variant("v", {"parallel": {"tensor": 2}, "graphs": 2}))


def test_too_few_gpus_are_refused_with_their_number_and_none_is_for_the_cpu() -> None:
    shape = Shape.parse("b1_s16")
    assert mentions(refuses(TENSOR, shape, Machine(GPU, gpus=1)), "parallel", "{tensor: 2}", "2", "1")
    assert refuses(TENSOR, shape, Machine(GPU, gpus=2)) is None
    assert refuses(TENSOR, shape, Machine(None)) is None


def test_a_batch_that_cannot_be_divided_is_refused() -> None:
    data = Variant("dp2", {"parallel": {"data": 2}})
    assert refuses(data, Shape.parse("b4"), Machine(None)) is None
    assert mentions(refuses(data, Shape.parse("b3"), Machine(None)), "{data: 2}", "3", "2")
    assert refuses(data, Shape.parse("b3"), replace(Machine(GPU), gpus=2)) is not None


def test_the_option_reaches_a_run_as_it_stands_in_the_config() -> None:
    variants = config.variants([{"name": "tp2", "parallel": {"tensor": 2}}])
    flags = targets.flags(variants["tp2"].options)
    assert flags == """--set 'parallel={"tensor": 2}'"""
    assert option('parallel={"tensor": 2}') == ("parallel", {"tensor": 2})


def test_a_process_that_is_alone_does_not_run_the_whole_in_place_of_a_part(tmp_path: Path) -> None:
    spec = ModelSpec("m", tmp_path / "m.yaml", "python", (InputSpec("x", "float32", ("b", 4)),))
    request = OpenRequest(spec.path, spec, "fp32", Shape.parse("b2"), TENSOR, CpuDevice(), 1)
    with pytest.raises(UserError, match=naming("tp2", "parallel", "{tensor: 2}")):
        torch_ranks.world_of(request)
    assert torch_ranks.world_of(replace(request, variant=Variant())) is None


@pytest.mark.parametrize(("gpus", "hosts", "needed"), [(2, 4, 1), (1, 4, 2), (0, 4, 2), (0, 1, 1)])
def test_a_case_is_spread_over_as_many_hosts_as_its_ranks_need(gpus: int, hosts: int, needed: int) -> None:
    machine = Machine(GPU if gpus else None, gpus=gpus, hosts=hosts)
    assert World("tensor", 2).hosts(machine) == needed


def test_gpus_of_all_hosts_count_and_ranks_are_spread_evenly() -> None:
    shape, three = Shape.parse("b1_s16"), Variant("tp3", {"parallel": {"tensor": 3}})
    assert refuses(TENSOR, shape, Machine(GPU, gpus=1, hosts=2)) is None
    assert mentions(refuses(three, shape, Machine(GPU, gpus=1, hosts=2)), "3 GPUs", "2")
    assert mentions(refuses(three, shape, Machine(GPU, gpus=2, hosts=2)), "{tensor: 3}", "2 hosts")
