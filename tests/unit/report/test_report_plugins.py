"""Sections, checks and plots as plug-ins: what a made-up one adds to a report, and what one that fails leaves."""

import csv
import dataclasses
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import facts, mentions, states
from tests.unit.report.conftest import CASE_KEYS, Results, evidence_of

from inferprof import registry, report
from inferprof.case import Case
from inferprof.diagnosis import run
from inferprof.plots import render
from inferprof.report import compose, figures, txt
from inferprof.report.evidence import Evidence
from inferprof.report.model import Column, Report, Table, Text, number, words
from inferprof.report.section import Section, sections
from inferprof.report.sections import use

FAILING = """
from inferprof.findings import Frames
from inferprof.plugins import Check, Plot
from inferprof.report.section import Section, sections


def fail(given):
    raise ValueError("it broke\\nin its second line")


SECTION = Section(name="failing", title="A failing section", place=5, build=fail)
CHECK = Check(name="failing", title="Failing", level="host", needs=(), run=fail)
PLOT = Plot(name="failing", title="A failing plot", caption="", needs={"end_to_end_ms": 1}, draw=fail, place=5,
            section="Latency")
"""
DEFECT = "ValueError: it broke in its second line; this is a defect of added.py:8"


@pytest.fixture
def example(add: Callable[[str], None], repository: Path) -> Callable[[str], None]:
    """Loads the example of docs/architecture.md that has a plug-in of a kind."""
    blocks = re.findall(r"```python\n(.*?)```", (repository / "docs/architecture.md").read_text(), re.DOTALL)

    def use(begins: str) -> None:
        (block,) = (block for block in blocks if begins in block)
        add(block)

    return use


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Loads a module as INFERPROF_PLUGINS does."""

    def use(text: str) -> None:
        path = tmp_path / "added.py"
        path.write_text(text)
        monkeypatch.setenv(registry.OUTSIDE, str(path))

    return use


def test_a_module_adds_a_section_with_its_table_and_csv(example: Callable[[str], None], cpu_study: Results) -> None:
    example("@section(")
    folder = report.write(cpu_study.root, cpu_study.study, cpu_study.machine).parent
    lines = (folder / "REPORT.txt").read_text().splitlines()
    assert lines.index("Calls") < lines.index("Answer")
    with (folder / "csv/calls.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows] == list(evidence_of(cpu_study).measured["model"])
    assert all(float(row["call_ms"]) > 0 for row in rows)
    assert "Calls" in (folder / "REPORT.html").read_text()


def test_a_section_is_left_out_where_what_it_needs_is_empty(example: Callable[[str], None], results: Results) -> None:
    example("@section(")
    results.refused("vit/fp32/ort_cuda/default/b1", "no GPU")
    results.plan()
    assert "Calls" not in titles(compose.compose(evidence_of(results)))


def test_a_column_of_a_table_is_declared_in_the_module_of_its_section(
    monkeypatch: pytest.MonkeyPatch, cpu_study: Results
) -> None:
    monkeypatch.setitem(use.RESOURCES, "round", ("made_up_mib", "extra"))
    made = compose.compose(evidence_of(cpu_study))
    resources = table(made, "first_use_memory")
    place = [column.key for column in resources.columns].index("made_up_mib")
    assert {row[place].value for row in resources.rows} == {0.0}
    assert "extra" in txt.render(made)


def test_a_module_adds_a_check_to_each_diagnosis_and_to_the_report(
    example: Callable[[str], None], cpu_study: Results, repository: Path
) -> None:
    example("@check(")
    measured = Case.from_path("vit_base/fp16/ort_cuda/default/b114.json")
    document = run.diagnose(repository / "tests/data/records", "h100-80gb-hbm3-sm90-93fb0a94", measured, {})
    case = "vit_tiny/fp32/ort_cpu/default/b1"
    named = {"machine": cpu_study.machine, "case": dict(zip(CASE_KEYS, case.split("/"), strict=True))}
    cpu_study.write(f"{cpu_study.machine}/diagnosis/{case}.json", {**document, **named})
    (answer,) = (one for one in document["answers"] if one["check"] == "long_tail")
    assert answer["verdict"] == "clear" and 1 <= answer["evidence"]["times"] < 2, answer
    answers = table(compose.compose(evidence_of(cpu_study)), "check_answers")
    assert "long_tail" in {cell.text for row in answers.rows for cell in row}


CHANGING = """
from inferprof.findings import Clear
from inferprof.plugins import Check


def run(frames):
    del frames.latency["boundary"]
    return {gives}


CHECK = Check(name="a_first_one", title="The first", level="host", needs=("record",), run=run)
"""


@pytest.mark.parametrize(
    ("gives", "verdict"),
    [
        ("Clear('nothing')", "clear"),
        ("None", "not assessed"),
        ("Clear('\\udc80')", "not assessed"),
        ("Clear(3)", "not assessed"),
        ("exit()", "not assessed"),
    ],
)
def test_a_check_takes_nothing_from_the_others(
    add: Callable[[str], None], repository: Path, caplog: pytest.LogCaptureFixture, gives: str, verdict: str
) -> None:
    measured = Case.from_path("vit_base/fp16/ort_cuda/default/b114.json")
    asked: Any = (repository / "tests/data/records", "h100-80gb-hbm3-sm90-93fb0a94", measured, {})
    alone = run.diagnose(*asked)
    add(CHANGING.format(gives=gives))
    first, *others = sorted(run.diagnose(*asked)["answers"], key=lambda answer: answer["check"] != "a_first_one")
    assert first["verdict"] == verdict and others == alone["answers"]
    caplog.clear()


def test_a_module_adds_a_plot_of_each_model(
    example: Callable[[str], None], cpu_study: Results, tmp_path: Path
) -> None:
    example("= Plot(")
    (tmp_path / "plots").mkdir()
    plots = figures.draw(evidence_of(cpu_study), tmp_path / "plots")
    made = compose.with_plots(compose.compose(evidence_of(cpu_study)), plots())
    latency = next(section for section in made.sections if section.title == "Latency")
    assert [block.title for block in latency.blocks[:1] if not isinstance(block, Text)] == ["Bars: vit_tiny"]
    assert {path.name for path in (tmp_path / "plots").glob("bars-*")} == {
        "bars-minilm.svg",
        "bars-vit_tiny.svg",
    }


@pytest.mark.parametrize("processes", [1, 2])
def test_what_fails_is_said_and_takes_nothing_else(
    add: Callable[[str], None],
    cpu_study: Results,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    processes: int,
) -> None:
    monkeypatch.setattr(figures, "PLOTS_OF_A_PROCESS", 1)
    whole = set(titles(compose.compose(evidence_of(cpu_study))))
    add(FAILING)
    folder = report.write(cpu_study.root, cpu_study.study, cpu_study.machine, processes=processes).parent
    text = " ".join((folder / "REPORT.txt").read_text().split())
    assert states(text, "not", *facts(DEFECT))
    assert states(text, "failing", "vit_tiny", "not", *facts(DEFECT))
    assert set(titles(compose.compose(evidence_of(cpu_study)))) == whole | {"A failing section"}
    assert not list((folder / "plots").glob("failing-*"))
    assert mentions(caplog.text, "it broke\nin its")
    caplog.clear()


SERIES = """
from matplotlib.figure import Figure
from inferprof.plugins import Plot

PLOT = Plot(name="series", title="A plot of series", caption="", needs={needs}, draw=lambda frame: Figure(), place=5,
            section="Latency")
"""


@pytest.mark.parametrize(
    ("needs", "drawn"),
    [
        ({"end_to_end_samples": 2}, {"vit_tiny", "minilm"}),
        ({"end_to_end_samples": 99}, set()),
        ({"telemetry": 2}, set()),
    ],
)
def test_a_plot_may_need_several_cases_with_a_series(
    add: Callable[[str], None], cpu_study: Results, tmp_path: Path, needs: dict[str, int], drawn: set[str]
) -> None:
    add(SERIES.replace("{needs}", repr(needs)))
    (tmp_path / "plots").mkdir()
    figures.draw(evidence_of(cpu_study), tmp_path / "plots")()
    assert {path.stem.removeprefix("series-") for path in (tmp_path / "plots").glob("series-*")} == drawn


def test_a_plot_whose_needs_cannot_be_looked_at_takes_nothing_else(
    add: Callable[[str], None],
    cpu_study: Results,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    add(FAILING)
    lacks = render.lacks
    monkeypatch.setattr(render, "lacks", lambda plot, frame: 1 / 0 if plot.name == "failing" else lacks(plot, frame))
    (tmp_path / "plots").mkdir()
    blocks = figures.draw(evidence_of(cpu_study), tmp_path / "plots")().blocks
    said = [block.text for block in blocks if isinstance(block, Text) and block.mark == "fail"]
    assert len(said) == 2 and all("ZeroDivisionError" in text for text in said)
    assert len(blocks) > 10
    caplog.clear()


def test_a_plot_of_a_section_that_there_is_not_is_refused_with_those_that_there_are(
    add: Callable[[str], None], cpu_study: Results, tmp_path: Path
) -> None:
    add(SERIES.replace("{needs}", "{}").replace('"Latency"', '"Latenzy"'))
    (tmp_path / "plots").mkdir()
    blocks = figures.draw(evidence_of(cpu_study), tmp_path / "plots")().blocks
    (said,) = (block.text for block in blocks if isinstance(block, Text) and block.mark == "fail")
    assert all(word in said for word in ("A plot of series", "Latenzy", "did you mean Latency?", "Under load"))
    assert not list((tmp_path / "plots").glob("series-*"))


def test_a_new_plug_in_and_a_change_to_one_are_news_to_what_is_made_with_them(
    add: Callable[[str], None], tmp_path: Path
) -> None:
    packages = "inferprof.diagnosis", "inferprof.plots"
    before = registry.sources(*packages)
    assert {"unsteady_host", "stacked"} <= set(before)
    add("A = 1")
    with_it = registry.sources(*packages)
    add("A = 2")
    assert before != with_it != registry.sources(*packages) != before


def rows_without_a_cell(evidence: Evidence) -> Any:
    return [Table("short", "", (Column("a", "a"), Column("b", "b")), ((words("x"),),))]


def one_cell(name: str = "mine", cell: Any = None) -> Table:
    return Table(name, "", (Column("a", "a"),), ((cell or words("x"),),))


def late(evidence: Evidence) -> Any:
    yield Text("first")
    raise ValueError("it broke")


@pytest.mark.parametrize(
    ("build", "needs", "word"),
    [
        (rows_without_a_cell, (), "defect of"),
        (late, (), "it broke"),
        (lambda evidence: sys.exit(3), (), "sys.exit(3)"),
        (lambda evidence: ["text"], (), "no block"),
        (lambda evidence: None, (), "no block"),
        (late, ("no_such_field",), "no_such_field"),
        (lambda evidence: [one_cell("../../x")], (), "'../../x'"),
        (lambda evidence: [one_cell(), one_cell()], (), "two tables"),
        (lambda evidence: [one_cell(cell="x")], (), "no cell"),
        (lambda evidence: [one_cell(cell=number(float("nan"), "nan"))], (), "nan"),
        (lambda evidence: [Text(evidence)], (), "no text"),
    ],
)
def test_a_section_may_fail_in_any_way(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    cpu_study: Results,
    build: Callable[[Evidence], Any],
    needs: tuple[str, ...],
    word: str,
) -> None:
    failing = Section("failing", "A failing section", 5, build, needs)
    monkeypatch.setattr(compose, "sections", lambda: {"failing": failing})
    (section,) = compose.compose(evidence_of(cpu_study)).sections
    (said,) = section.blocks
    assert isinstance(said, Text) and said.mark == "fail" and mentions(said.text, word)
    caplog.clear()


def test_every_module_among_the_sections_is_one() -> None:
    import inferprof.report.sections as folder

    modules = {path.stem for path in Path(str(folder.__file__)).parent.glob("[a-z]*.py")}
    with_one = {section.build.__module__.rpartition(".")[2] for section in sections().values()}
    assert modules == with_one


def test_places_and_titles_are_unique_and_needs_are_fields_of_the_evidence() -> None:
    every = sections().values()
    assert len({section.place for section in every}) == len({section.title for section in every}) == len(every)
    fields = {field.name for field in dataclasses.fields(Evidence)} | {*dir(Evidence)}
    assert {need for section in every for need in section.needs} <= fields


def test_every_plot_belongs_to_a_section() -> None:
    assert {plot.section for plot in registry.plots().values()} <= {one.title for one in sections().values()}


def titles(made: Report) -> list[str]:
    return [section.title for section in made.sections]


def table(made: Report, name: str) -> Table:
    return next(one for one in made.tables if one.name == name)
