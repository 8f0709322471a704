"""The text of Nsight Compute holds what its details page does."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.facts import mentions

from inferprof.errors import UserError
from inferprof.readers import ncu_text
from inferprof.readers.ncu_launches import Launch

LAUNCH = """\
  {name} ({grid}, 1, 1)x(128, 1, 1), Context 1, Stream 13, Device 0, CC 8.9
    Section: GPU Speed Of Light Throughput
    ----------------------- ----------- ------------
    Metric Name             Metric Unit Metric Value
    ----------------------- ----------- ------------
    DRAM Frequency                  Ghz         7.99
    Memory Throughput                 %        18.91
    Duration                         ms        43.15
    Compute (SM) Throughput           %        84.49
    ----------------------- ----------- ------------

    OPT   Est. Speedup: 30.21%
          Look at the Compute Workload Analysis section to see what the
          compute pipelines are spending their time doing.

"""
HEAD = "==PROF== Connected to process 5\nprogram says hello\n==PROF== Disconnected\n[5] main@127.0.0.1\n"


def read(tmp_path: Path, text: str) -> list[Launch]:
    path = tmp_path / "ncu.txt"
    path.write_text(text, encoding="utf-8")
    return ncu_text.read(path)


def test_launches_have_their_numbers_sizes_and_rules(tmp_path: Path) -> None:
    first, second = read(
        tmp_path, HEAD + LAUNCH.format(name="gemm<int, 4>(float *, int)", grid=9) + LAUNCH.format(name="b", grid=2)
    )
    assert (first.name, first.grid, first.block, first.stream, first.device) == (
        "gemm<int, 4>(float *, int)",
        "9,1,1",
        "128,1,1",
        13,
        0,
    )
    assert first.raw["gpu__time_duration.sum"] == 43_150_000
    assert first.raw["sm__throughput.avg.pct_of_peak_sustained_elapsed"] == 84.49
    (rule,) = first.rules
    assert (rule.kind, rule.speed_up, rule.scope) == ("optimization", 30.21, "kernel")
    assert rule.message.endswith("spending their time doing.")
    assert (second.number, second.grid) == (1, "2,1,1")


def test_a_last_launch_that_is_cut_off_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = LAUNCH.format(name="b", grid=2).partition("    Duration")[0]
    (launch,) = read(tmp_path, HEAD + LAUNCH.format(name="a", grid=9) + cut)
    assert mentions(capsys.readouterr().err, "left out", "last launch, of b", "cut")
    assert launch.name == "a"


def test_a_text_without_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="ncu --page details"):
        read(tmp_path, HEAD)


def test_other_peoples_texts_are_read(shared: Path) -> None:
    openmp = ncu_text.read(shared / "real/ncu_csv/ncu_cli_text_openmp_nvhpc.txt")
    assert [launch.raw["gpu__time_duration.sum"] / 1e6 for launch in openmp] == [43.15, 46.93, 1.95, 14.0]
    older = ncu_text.read(shared / "real/ncu_csv/ncu_cli_text_rtx30_spec_xc_first400lines.txt")
    assert older[0].raw["gpu__time_duration.sum"] == 3_000_000
    assert (older[0].name.partition("(")[0], older[0].grid, older[0].block) == (
        "cmuldual2DKernel",
        "2251,1,1",
        "32,32,1",
    )
