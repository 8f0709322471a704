"""Nsight Compute's files that are cut short, of other locales, of several runs, and in units given by hand."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest
from tests.unit import cuts
from tests.unit.facts import naming

from inferprof.errors import UserError
from inferprof.profilers import ncu
from inferprof.readers import ncu_csv
from inferprof.readers.ncu_launches import Launch

HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)
RULES = f'{HEADER},"Rule Name","Rule Type","Rule Description","Estimated Speedup Type","Estimated Speedup"'
START = '"{}","7","app","127.0.0.1","gemm(float *)","1","13","(128, 1, 1)","(4, 2, 1)","{}","9.0",'
DURATION, SM = "gpu__time_duration.sum", "sm__throughput.avg.pct_of_peak_sustained_elapsed"
READ = "dram__bytes_read.sum"


def row(name: str, unit: str, value: str, launch: int = 0, device: int = 0) -> str:
    return START.format(launch, device) + f'"Command line profiler metrics","{name}","{unit}","{value}"'


def details(folder: Path, *rows: str, header: str = HEADER) -> list[Launch]:
    path = folder / "details.csv"
    path.write_text("\n".join([header, *rows, ""]), encoding="utf-8")
    return ncu_csv.read(path)


# --- cut short -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ncu_cut_traceback", "ncu_cut_wrong_number"])
def test_a_row_that_is_cut_is_said_in_one_line(name: str, repository: Path) -> None:
    with pytest.raises(UserError, match="cut short or damaged") as caught:
        ncu.read(repository / f"tests/data/faults/{name}.csv")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("page", ["raw", "details"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_page_that_is_cut_anywhere_is_refused_but_behind_a_launch(
    page: str, packed: bool, repository: Path, tmp_path: Path
) -> None:
    """Behind a row nothing tells that more would have followed, unless other launches have more metrics."""
    whole = (repository / f"tests/data/ncu/h100_ort_cuda_vit_{page}.csv.gz").read_bytes()
    content = whole if packed else gzip.decompress(whole)
    kept = list(cuts.accepted(content, "x.csv", ncu.read, tmp_path, cuts.places(content, most=25)))
    assert not (packed and kept)
    assert [
        place for place in kept if content[place:].partition(b"\n")[0].strip(b",\r") and content[place - 1] != 10
    ] == []


def test_a_small_page_is_refused_at_any_byte_but_behind_rows_of_its_first_launch(tmp_path: Path) -> None:
    rows = [row(name, "ns", "92,416", launch) for launch in (0, 1) for name in (DURATION, "gpu__time_active.avg")]
    lines = [f"{line}\n".encode() for line in (HEADER, *rows)]
    content = b"".join(lines)
    ends = [sum(map(len, lines[:count])) for count in (2, 3)]
    kept = set(cuts.accepted(content, "x.csv", ncu.read, tmp_path, range(len(content))))
    assert kept == {place - before for place in ends for before in (0, 1)}


def test_words_of_a_rule_that_end_in_the_middle_are_no_whole_row(tmp_path: Path) -> None:
    rule = START.format(0, 0) + '"SOL","","","","SOLBottleneck","OPT","a ""b"" c","global","12.5"'
    path = tmp_path / "x.csv"
    path.write_text("\n".join([RULES, row(DURATION, "ns", "9") + ",", rule, ""]))
    (launch,) = ncu_csv.read(path)
    assert (launch.rules[0].message, launch.rules[0].speed_up) == ('a "b" c', 12.5)
    path.write_text(path.read_text()[:-1])
    with pytest.raises(UserError, match="cut short"):
        ncu_csv.read(path)


def test_a_report_that_is_cut_is_refused_but_between_its_blocks(repository: Path, tmp_path: Path) -> None:
    content = lzma.decompress((repository / "tests/data/ncu/manual_nvtx.ncu-rep.xz").read_bytes())
    kept = list(cuts.accepted(content, "x.ncu-rep", ncu.read, tmp_path, cuts.places(content, most=25)))
    assert kept == []


def test_a_report_that_is_smaller_than_it_was_made_is_refused(repository: Path, tmp_path: Path) -> None:
    content = lzma.decompress((repository / "tests/data/ncu/manual_nvtx.ncu-rep.xz").read_bytes())
    last_block = 119_733
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(content[:last_block])
    (tmp_path / "x.settings.json").write_text(f'{{"bytes": {len(content)}, "clock_control": "none"}}')
    with pytest.raises(UserError, match=naming("cut short", "162,104 bytes")):
        ncu.read(path)


# --- locales ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("duration", "percent"),
    [
        ("117,344", "65.77"),
        ("117.344", "65,77"),
        ("117.344", "65,770"),
        ("117\u202f344", "65,77"),
        ("117\u00a0344", "65,77"),
        ("117'344", "65.77"),
        ("117\u2019344", "65.77"),
        ("117344", "65.770000"),
        ("117344", "65,770000"),
    ],
)
def test_a_number_is_the_same_in_every_locale(duration: str, percent: str, tmp_path: Path) -> None:
    (launch,) = details(tmp_path, row(DURATION, "ns", duration), row(SM, "%", percent))
    assert (launch.raw[DURATION], launch.raw[SM]) == (117_344, 65.77)


@pytest.mark.parametrize(("unit", "text", "value"), [("ns", "117.344", 117_344), ("byte", "1.234.567", 1_234_567)])
def test_whole_units_and_two_groups_tell_thousands_where_there_is_no_percentage(
    unit: str, text: str, value: int, tmp_path: Path
) -> None:
    name = DURATION if unit == "ns" else READ
    (launch,) = details(tmp_path, row(name, unit, text))
    assert launch.raw[name] == value


def test_an_expected_gain_has_the_decimal_sign_of_its_file(tmp_path: Path) -> None:
    rule = START.format(0, 0) + '"SOL","","","","SOLBottleneck","OPT","words","global","12,5"'
    (launch,) = details(tmp_path, row(SM, "%", "65,77") + ",", rule, header=RULES)
    assert launch.rules[0].speed_up == 12.5


def test_numbers_of_two_locales_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="two locales"):
        details(tmp_path, row(DURATION, "ns", "117.344"), row(SM, "%", "65.77"))


@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "n/a", ""])
def test_what_is_not_finite_is_left_out(text: str, tmp_path: Path) -> None:
    (launch,) = details(tmp_path, row(DURATION, "ns", "5"), row(SM, "%", text))
    assert set(launch.raw) == {DURATION}


# --- units and devices -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "unit", "text", "value"),
    [
        (DURATION, "ns", "3,002,048", 3_002_048),
        (DURATION, "s", "0.003", 3_000_000),
        ("gpc__cycles_elapsed.avg.per_second", "cycle/second", "1,980,000,000", 1.98e9),
        ("gpc__cycles_elapsed.avg.per_second", "hz", "1,980,000,000", 1.98e9),
        (READ, "byte", "4,096,000", 4_096_000),
    ],
)
def test_base_units_are_read(name: str, unit: str, text: str, value: float, tmp_path: Path) -> None:
    (launch,) = details(tmp_path, row(name, unit, text))
    assert launch.raw[name] == pytest.approx(value)


@pytest.mark.parametrize("unit", ["", "fortnight"])
def test_a_duration_in_an_unknown_unit_is_refused(unit: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gpu__time_duration\.sum in"):
        details(tmp_path, row(DURATION, unit, "5"))


def test_launches_of_several_devices_keep_theirs(tmp_path: Path) -> None:
    launches = details(tmp_path, row(DURATION, "ns", "5", 0, 0), row(DURATION, "ns", "6", 1, 3))
    assert [(launch.device, launch.raw[DURATION]) for launch in launches] == [(0, 5), (3, 6)]


def test_tables_of_two_runs_in_one_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="several tables"):
        details(tmp_path, row(DURATION, "ns", "5"), "", HEADER, row(DURATION, "ns", "6"))
    with pytest.raises(UserError, match=naming("launch 0", "twice")):
        details(tmp_path, row(DURATION, "ns", "5"), row(DURATION, "ns", "6", 1), row(DURATION, "ns", "7"))
