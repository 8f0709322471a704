"""Text of others, where it goes out: harmless for terminals, pages and spreadsheets."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from inferprof import cli, escape, progress, report, verbs
from inferprof.errors import UserError
from inferprof.report import html, txt
from inferprof.report.model import Column, Report, SectionContent, Table, Text, missing, number, words

RED = "\x1b[31mRED\x1b]0;pwn\x07"
HOSTILE = ["\x1b[2J", "\x9b31m", "\x07", "\r", "\x00", "\x7f", "\u202e", "\u2028", "\u2066", "\ud800", "\x85"]


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_what_a_terminal_obeys_is_spelled_out(text: str) -> None:
    assert escape.text(f"a{text}b").isascii()
    assert escape.text(f"a{text}b").isprintable()


def test_what_an_error_quotes_is_shortened_and_its_own_words_are_not() -> None:
    said = escape.message(
        f"a.zip holds the name {'x/' * 4000!r}, no plain path\nand {'a long name ' * 400}; unpack it"
    )
    assert said[:20] == "a.zip holds the name" and "', no plain path\n" in said
    assert said[-11:] == "; unpack it" and len(said) < 2500
    ordinary = f"unknown: {', '.join(f'name_{number}' for number in range(150))}"
    assert escape.message(ordinary) == ordinary


@pytest.mark.parametrize("text", ["plain", "a\tb\nc", "→ µs ≤ 3 × naïve 模型", "C:\\x1b"])
def test_what_a_terminal_prints_stays(text: str) -> None:
    assert escape.text(text) == text


@pytest.mark.parametrize(
    "text", ["=1+1", "+1+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", " =1", "\t=1", "\tx", "\r=1", "\n=1", "＝1"]
)
def test_a_formula_begins_with_an_apostrophe(text: str) -> None:
    assert escape.cell(text) == f"'{escape.text(text)}"


@pytest.mark.parametrize("value", ["-1", "+1.5e-3", "-3.2 %", "-", "", "a=b", "a-b", -1, 2.5, None])
def test_numbers_and_plain_words_stay(value: object) -> None:
    assert escape.cell(value) == value


def hostile_report() -> Report:
    columns = (Column("=key", RED), Column("ms", "ms", "number"))
    rows = ((words(f"=1+1{RED}"), number(-1.5, "-1.5")), (words("-x"), missing(f"@{RED}")))
    table = Table("table", f"title {RED}", columns, rows, note=RED)
    return Report(f"title {RED}", RED, (SectionContent(RED, (Text(RED), Text(f"`{RED}`", "item"), table)),))


def test_no_report_carries_an_escape() -> None:
    for page in (txt.render(hostile_report()), html.render(hostile_report())):
        assert "\\x1b[31mRED\\x1b]0;pwn\\x07" in page
        assert not set(page) & {"\x1b", "\x07", "\x9b"}


def test_no_cell_of_a_csv_is_a_formula(tmp_path: Path) -> None:
    report.write_csv(hostile_report().tables[0], tmp_path / "x.csv")
    text = (tmp_path / "x.csv").read_text()
    assert "\x1b" not in text
    assert [[cell[:2] for cell in row] for row in csv.reader(text.splitlines())] == [
        ["'=", "ms", "no"],
        ["'=", "-1", ""],
        ["'-", "", "ms"],
    ]


def test_errors_and_progress_say_no_escape(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: Path) -> None:
        raise UserError(f"x.json: {RED}")

    monkeypatch.setattr(verbs, "write_document", lambda *_: fails(Path()))
    monkeypatch.setattr("inferprof.devices.bandwidth.measure", lambda _: {})
    monkeypatch.setattr("inferprof.devices.cuda.CudaDevice", lambda: None)
    assert cli.main(["bandwidth", "--out", "x.json"]) == 2
    with progress.displayed(), progress.task(RED, ("run",)):
        progress.step("run")
    said = capsys.readouterr().err
    assert said.count("\\x1b[31mRED") == 3
    assert "\x1b" not in said
