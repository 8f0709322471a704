"""Tables that torch's profilers print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from inferprof.errors import UserError
from inferprof.explain import explain
from inferprof.explain.foreign import Foreign

HEAD = (
    "Name",
    "Self CPU %",
    "Self CPU",
    "CPU total %",
    "CPU total",
    "CPU time avg",
    "Self CUDA",
    "Self CUDA %",
    "CUDA total",
    "CUDA time avg",
    "# of Calls",
)
OPERATOR = ("aten::mm", "20.00%", "2.000ms", "40.00%", "4.000ms", "1us", "3.000ms", "75.00%", "3.000ms", "1us", "10")
KERNEL = ("sm90_xmma_gemm_bf16bf16_bf16f32", "0.00%", "0.000us", "0.00%", "0.000us", "0us", *OPERATOR[6:])
COPY = ("Memcpy HtoD (Pinned -> Device)", *KERNEL[1:6], "1.000ms", "25.00%", "1.000ms", "1ms", "1")
RANGE = ("my_step", *KERNEL[1:6], "3.900ms", "97.50%", "3.900ms", "1ms", "1")
LAUNCH = ("cudaLaunchKernel", "80.00%", "8.000ms", "80.00%", "8.000ms", "8us", *("0.000us", "0.00%") * 2, "1000")


def text(rows: Sequence[Sequence[str]], *, markdown: bool = False, totals: bool = True) -> str:
    ruler = ["-" * 30] * len(rows[0])
    between = " | " if markdown else "  "
    lines = [rows[0], ruler, *rows[1:]] if markdown else [ruler, rows[0], ruler, *rows[1:], ruler]
    sums = ["Self CPU time total: 10.000ms", "Self CUDA time total: 4.000ms"] if totals else []
    return "\n".join([*(between.join(cell.rjust(30) for cell in line) for line in lines), *sums, ""])


def answered(path: Path, content: str) -> Foreign:
    path.write_text(content)
    (case,) = explain([path])
    return case


@pytest.mark.parametrize(("markdown", "totals"), [(False, True), (False, False), (True, False)])
def test_a_gpu_that_has_less_to_do_than_the_host_waits(markdown: bool, totals: bool, tmp_path: Path) -> None:
    table = text([HEAD, OPERATOR, RANGE, KERNEL, COPY, LAUNCH], markdown=markdown, totals=totals)
    case = answered(tmp_path / "table.txt", table)
    assert sum(case.captures[0].parts.values()) == pytest.approx(10e6)
    (finding,) = [finding for answer in case.answers if answer.check == "torch_table" for finding in answer.findings]
    assert finding.bottleneck == "launch" and finding.share == pytest.approx(0.6)
    rows = case.rows[case.rows["metric"] == "duration_total"].set_index("name")["value"]
    assert rows.to_dict() == {KERNEL[0]: 3e6, "HtoD": 1e6}  # a range is no kernel


def test_without_kernels_the_operators_are_told(tmp_path: Path) -> None:
    case = answered(tmp_path / "ops.txt", text([HEAD, OPERATOR], totals=False).replace("2.000ms", "0.002ms"))
    (finding,) = [finding for answer in case.answers for finding in answer.findings]
    assert (finding.subject, finding.share) == ("aten::mm", 0.75)


def test_without_a_gpu_the_program_between_the_operators_is_no_operator(tmp_path: Path) -> None:
    step = ("ProfilerStep*", "80.00%", "8.000ms", "100.00%", "10.000ms", "1ms", "10")
    own = (*OPERATOR[:6], "10")
    case = answered(tmp_path / "cpu.txt", text([(*HEAD[:6], HEAD[-1]), step, own]))
    (finding,) = [finding for answer in case.answers for finding in answer.findings]
    assert finding.subject == "aten::mm" and finding.share == pytest.approx(0.2)
    assert case.captures[0].parts["between the operators"] == pytest.approx(8e6)


def test_a_cell_that_is_no_time_and_headings_alone_are_refused(tmp_path: Path) -> None:
    for rows in ([HEAD, (*OPERATOR[:2], "much", *OPERATOR[3:])], [HEAD]):
        with pytest.raises(UserError):
            answered(tmp_path / "bad.txt", text(rows))
