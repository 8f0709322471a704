"""The peaks on file: every row has its source, and its numbers agree with each other."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from inferprof.errors import UserError
from inferprof.machine import peaks
from inferprof.units import GIB

ALL = pytest.mark.parametrize("row", peaks.every(), ids=lambda row: row.gpu)
PER_SM = {
    "Turing": {"fp32": 128, "fp16": 1024, "fp16_accumulate_fp16": 1024, "int8": 2048, "int4": 4096},
    "GA100": {"fp64": 64, "fp64_tensor": 128, "fp32": 128, "tf32": 1024, "fp16": 2048, "int8": 4096, "int4": 8192},
    "GA10x": {"fp32": 256, "tf32": 512, "fp16": 1024, "fp16_accumulate_fp16": 1024, "int8": 2048, "int4": 4096},
    "Ada": {"fp32": 256, "tf32": 512, "fp16": 1024, "fp8": 2048, "fp16_accumulate_fp16": 1024, "int8": 2048},
    "Hopper": {"fp64": 128, "fp64_tensor": 256, "fp32": 256, "tf32": 2048, "fp16": 4096, "fp8": 8192, "int8": 8192},
    "Thor": {"fp32": 256, "fp16": 8192, "fp8": 16384, "fp4": 32768},
    "Blackwell": {"fp32": 256, "tf32": 512, "fp16": 1024, "fp16_accumulate_fp16": 1024, "fp8": 2048, "fp4": 4096},
}
"""Operations per clock and SM, by NVIDIA's architecture documents; GeForce's tensor cores do half of them in FP32."""
FAMILIES = {"T4": "Turing", "20": "Turing", "30": "GA10x", "40": "Ada", "50": "Blackwell", "A100": "GA100"}
FAMILIES |= {"A30": "GA100", "A10": "GA10x", "A40": "GA10x", "A2": "GA10x", "A6000": "GA10x"}
FAMILIES |= {"H100": "Hopper", "H200": "Hopper", "GH200": "Hopper"}
FAMILIES |= {"GB10": "Blackwell", "T5000": "Thor"}
FAMILIES |= {"L4": "Ada", "L40": "Ada", "L40S": "Ada", "Ada": "Ada", "6000": "Turing", "PRO": "Blackwell"}
HALVED = {"tf32", "fp16", "bf16", "fp8"}


@pytest.mark.parametrize("cells", ["200,2oo", "200"])
def test_a_row_that_is_no_row_is_refused_with_its_line(
    cells: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, *_ = peaks.FILE.read_text(encoding="utf-8").splitlines()
    bad = tmp_path / "peaks.csv"
    bad.write_text(f"{head}\nMine,{cells}\n", encoding="utf-8")
    monkeypatch.setattr(peaks, "FILE", bad)
    with pytest.raises(UserError, match=r"peaks\.csv, line 2 \(Mine\)"):
        peaks._rows.__wrapped__()


def family(gpu: str) -> str | None:
    """The architecture by the GPU's name."""
    words = gpu.split()
    if words[:2] == ["GeForce", "RTX"]:
        return FAMILIES[words[2][:2]]
    return next((FAMILIES[word] for word in ("PRO", "Ada") if word in words), None) or next(
        (FAMILIES[word] for word in words if word in FAMILIES), None
    )


@ALL
def test_every_row_has_its_document_and_a_bandwidth(row):
    assert row.title.startswith("NVIDIA ") and row.url.startswith("https://")
    assert ".nvidia.com/" in row.url
    assert row.bandwidth and row.bandwidth > 1e11
    assert row.flops.get("fp32")


@pytest.mark.parametrize("row", [row for row in peaks.every() if row.sms], ids=lambda row: row.gpu)
def test_a_rate_is_sms_times_clock_times_what_an_sm_does(row):
    """The tensor cores of Hopper and of some datasheets run at another clock: there one clock fits all of them."""
    architecture = family(row.gpu)
    assert architecture is not None
    rates = PER_SM[architecture] | {"bf16": PER_SM[architecture]["fp16"]}
    halved = HALVED if row.gpu.startswith("GeForce") else set()
    clocks = {
        kind: flops / row.sms / (rates[kind] / (2 if kind in halved else 1))
        for kind, flops in row.flops.items()
        if kind in rates
    }
    cores = [clock for kind, clock in clocks.items() if kind in ("fp32", "fp64", "fp64_tensor")]
    tensors = [clock for kind, clock in clocks.items() if kind not in ("fp32", "fp64", "fp64_tensor")]
    precision = 0.05 if "one digit" in row.note else 0.022
    if row.boost_hz:
        assert cores[0] == pytest.approx(row.boost_hz, rel=precision)
    for group in (cores, tensors):
        assert group == [pytest.approx(group[0], rel=precision) for _ in group]


@ALL
def test_tensor_cores_before_ampere_know_no_sparsity(row):
    assert row.sparsity == (1 if family(row.gpu) == "Turing" else 2)


def test_names_are_unique_but_for_memory():
    with peaks.FILE.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    keys = [(name, row["memory_gib"]) for row in rows for name in row["names"].split("|")]
    assert len(keys) == len(set(keys))
    assert not any(name.startswith("NVIDIA ") for name, _ in keys)


def test_a_gpu_is_found_by_the_name_that_nvml_gives():
    found = peaks.of("NVIDIA H100 80GB HBM3", 85_520_809_984, 132)
    assert found is not None
    assert (found.gpu, found.flops["fp16"], found.flops["fp8"]) == ("H100 SXM5", 989.4e12, 1978.9e12)
    assert (found.bandwidth, found.l2_bytes, found.sparsity) == (3352e9, 50 << 20, 2)


def test_the_memory_tells_two_variants_of_one_name_apart():
    small, large = (peaks.of("NVIDIA GH200 480GB", 96 * GIB), peaks.of("NVIDIA GH200 144G HBM3e", 143 * GIB))
    assert (small and small.bandwidth, large and large.bandwidth) == (4000e9, 4900e9)


@pytest.mark.parametrize(
    ("name", "memory", "sms", "mig"),
    [
        ("NVIDIA H100 80GB HBM3 SXM9", 80 * GIB, 132, False),
        ("NVIDIA H100", 80 * GIB, None, False),
        ("NVIDIA GeForce RTX 3080", 12 * GIB, 70, False),
        ("NVIDIA GeForce RTX 3080", 10 * GIB, 70, False),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16 * GIB, 76, False),
        ("NVIDIA H100 80GB HBM3", 80 * GIB, 132, True),
        ("AMD Instinct MI300X", 192 * GIB, None, False),
    ],
)
def test_another_gpu_is_unknown_not_its_neighbour(name, memory, sms, mig):
    assert peaks.of(name, memory, sms, mig) is None


def test_what_a_document_does_not_state_is_not_there():
    found = peaks.of("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 96 * GIB)
    assert found is not None
    assert set(found.flops) == {"fp32", "fp16", "fp16_accumulate_fp16", "bf16", "fp4"}


def rates_of(gpu: str) -> dict[str, float]:
    """The rates of a row in TFLOP/s, and its bandwidth in GB/s."""
    (row,) = (row for row in peaks.every() if row.gpu == gpu)
    assert row.bandwidth is not None
    return {kind: flops / 1e12 for kind, flops in row.flops.items()} | {"bandwidth": row.bandwidth / 1e9}


@pytest.mark.parametrize(
    ("gpu", "printed"),
    [
        ("GeForce RTX 2080 Ti", {"fp32": 13.4, "fp16": 53.8, "fp16_accumulate_fp16": 107.6, "int4": 430.3}),
        ("A100 PCIe 80 GB", {"fp64_tensor": 19.5, "tf32": 156, "bf16": 312, "int8": 624, "bandwidth": 1935}),
        ("A10", {"fp32": 31.2, "tf32": 62.5, "fp16": 125, "int8": 250, "int4": 500, "bandwidth": 600}),
        ("GeForce RTX 4090", {"fp16": 165.2, "fp8": 330.3, "fp8_accumulate_fp16": 660.6, "bandwidth": 1008}),
        ("L40S", {"tf32": 183, "bf16": 733 / 2, "fp8": 733, "int8": 733, "bandwidth": 864}),
        ("H100 SXM5", {"fp64": 33.5, "tf32": 494.7, "bf16": 989.4, "fp8": 1978.9, "bandwidth": 3352}),
        ("H100 NVL", {"fp64": 30, "tf32": 835 / 2, "bf16": 1671 / 2, "fp8": 3341 / 2, "bandwidth": 3938}),
        ("H200 SXM", {"fp64_tensor": 67, "tf32": 989 / 2, "fp8": 3958 / 2, "bandwidth": 4800}),
        ("GH200 144 GB HBM3e", {"fp64": 34, "tf32": 494, "bf16": 990, "int8": 1979, "bandwidth": 4900}),
        ("B200", {"fp64_tensor": 37, "fp32": 75, "tf32": 1100, "fp8": 4500, "fp4": 9000, "bandwidth": 7700}),
        ("GB200", {"fp64_tensor": 40, "fp32": 80, "tf32": 1250, "fp8": 5000, "fp4": 10000, "bandwidth": 8000}),
        ("GeForce RTX 5090", {"fp16": 209.5, "fp8": 419, "fp8_accumulate_fp16": 838, "fp4": 1676}),
        (
            "RTX PRO 6000 Blackwell Workstation Edition",
            {"fp32": 125, "bf16": 503.8, "fp4": 2000},
        ),
        ("RTX PRO 6000 Blackwell Server Edition", {"fp32": 120, "bf16": 500, "fp8": 1000, "bandwidth": 1597}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rates_are_those_that_nvidia_prints_and_dense(gpu: str, printed: dict[str, float]) -> None:
    """A half is of a rate that is printed with 2:4 sparse weights alone."""
    found = rates_of(gpu)
    assert {kind: found[kind] for kind in printed} == pytest.approx(printed, rel=1e-3)


def test_most_rows_were_checked_and_the_rest_are_named():
    unchecked = [row.gpu.removeprefix("GeForce RTX ") for row in peaks.every() if not row.checked]
    assert unchecked == ["2080", "2070", "3090", "A2", "4080", "4070 Ti", "5080", "5070 Ti", "5070"]


@pytest.mark.parametrize(
    ("name", "memory", "gpu"),
    [
        ("NVIDIA GB10", None, "GB10"),
        ("NVIDIA GB10", 128501256192, "GB10"),
        ("NVIDIA GB200", 186 * GIB, "GB200"),
        ("NVIDIA GB300", 279 * GIB, "GB300"),
        ("NVIDIA Thor", None, "Jetson T5000"),
        ("NVIDIA B300 SXM6 AC", 268 * GIB, None),
    ],
)
def test_grace_and_jetson_are_told_apart_also_where_nvml_tells_no_memory(name, memory, gpu):
    found = peaks.of(name, memory)
    assert (found and found.gpu) == gpu
