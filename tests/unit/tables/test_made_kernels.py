"""The kernels that were made to have one fault each (tests/gpu/faulty_kernels.py), as far as no GPU is needed.

Their counters on a GPU are test data: `tests/gpu/make_ncu_data.py` writes them.
"""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from typing import get_args

import pytest
from tests.gpu import make_ncu_data
from tests.gpu.faulty_kernels import ARRAYS, FLOAT_BYTES, KERNELS, SMALLEST, Launch, amiss, compile_for, plan
from tests.gpu.make_ncu_data import DATA
from tests.unit.facts import facts

from inferprof.tables.counters.kernel_faults import FaultName, Finding

H100 = {"sms": 132, "resident": 8, "l2_bytes": 50 << 20}
T4 = {"sms": 40, "resident": 4, "l2_bytes": 4 << 20}


@pytest.fixture(scope="module")
def findings() -> dict[str, list[Finding]]:
    """Of the counters that a GPU gave."""
    if not (DATA / "faults.csv").exists():
        pytest.skip("no counters of the made kernels yet: `python -m tests.gpu.make_ncu_data` writes them on a GPU")
    facts = json.loads((DATA / "faults.json").read_text())
    return make_ncu_data.findings(DATA / "faults.csv", facts["must_read"])


@pytest.mark.parametrize("name", KERNELS)
def test_each_made_kernel_shows_its_own_fault_and_no_other(name: str, findings: dict[str, list[Finding]]) -> None:
    assert list(amiss(name, findings[name])) == []


def test_all_made_kernels_have_counters(findings: dict[str, list[Finding]]) -> None:
    assert set(findings) == set(KERNELS)


def test_a_wrong_verdict_on_a_made_kernel_is_told() -> None:
    tail = Finding("tail", "found", "", {"sm_idle": 50.0})
    assert list(amiss("tail", [tail, Finding("spills", "clear", "")])) == []
    assert list(amiss("tail", [replace(tail, verdict="clear", reason="1 wave")])) == ["tail: clear, 1 wave"]
    assert len(list(amiss("tail", [replace(tail, evidence={"sm_idle": 5.0})]))) == 1
    assert [
        facts(text, "found", "spills", "tail")
        for text in list(amiss("clean", [tail, Finding("spills", "not assessed", "needs x")]))
    ] == [["tail", "found"], ["spills", "not"]]


def test_the_page_is_kept_less_the_columns_that_nothing_is_made_of() -> None:
    header = '"ID","Kernel Name","lts__t_sectors.sum","c2clink__present"'
    page = "\n".join(["==PROF== done", header, '"","","sector",""', '"0","a","5","0"', ""])
    assert make_ncu_data.essential(page) == [
        ["ID", "Kernel Name", "lts__t_sectors.sum"],
        ["", "", "sector"],
        ["0", "a", "5"],
    ]


def test_every_fault_but_a_small_grid_has_a_kernel_and_one_kernel_has_none() -> None:
    faults = [made.fault for made in KERNELS.values()]
    assert sorted(map(str, faults)) == sorted({*get_args(FaultName), "None"} - {"small_grid"})


@pytest.mark.parametrize("gpu", [H100, T4])
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_one_wave_in_which_each_thread_has_the_same_share(name: str, gpu: dict[str, int]) -> None:
    launch = plan(KERNELS[name], **gpu)
    assert launch.grid == gpu["sms"] * gpu["resident"] + (1 if name == "tail" else 0)
    assert launch.elements % (launch.grid * KERNELS[name].block) == 0
    assert launch.elements >= SMALLEST


def test_arrays_fit_the_l2_but_for_the_kernel_that_is_to_miss_it() -> None:
    bytes_of = {name: ARRAYS * plan(made, **H100).reads for name, made in KERNELS.items()}
    assert bytes_of.pop("l2_thrash") > 8 * H100["l2_bytes"]
    assert max(bytes_of.values()) < H100["l2_bytes"] / 3


def test_what_a_kernel_must_read_is_its_input() -> None:
    assert Launch(grid=1, elements=1000).reads == 1000 * FLOAT_BYTES


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_the_compiler_spills_in_the_kernel_made_for_it_alone(arch: str) -> None:
    log = compiled(arch)
    spilled = dict(re.findall(r"Function properties for (\w+)\n.* (\d+) bytes spill stores", log))
    assert set(spilled) == set(KERNELS)
    assert [name for name, count in spilled.items() if int(count)] == ["spills"]


def compiled(arch: str) -> str:
    """The compiler's log, with what each kernel uses. Skips where there is no NVRTC, which needs no GPU."""
    pytest.importorskip("cuda.core")
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    try:
        load_nvidia_dynamic_lib("nvrtc")
    except DynamicLibNotFoundError:
        pytest.skip("no NVRTC: `pip install nvidia-cuda-nvrtc`")
    log = io.StringIO()
    compile_for(arch, log)
    return log.getvalue()
