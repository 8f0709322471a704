"""The files of a report, and what stands in all of them."""

import contextlib
import csv
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unit.facts import facts, mentions, naming, states
from tests.unit.report.conftest import INT8_IN_TORCH, NO_GPU, evidence_of

from inferprof import cli, report, spread
from inferprof.case import Case
from inferprof.errors import UserError
from inferprof.plots import render
from inferprof.report import compose, figures, html, txt
from inferprof.report.model import Card, Cell, Column, Report, SectionContent, Table, Text, words
from inferprof.report.sections import method
from inferprof.tables import schema

BASELINE = "fp32/ort_cpu/default"


class Page(HTMLParser):
    """Text, links and open elements of a page."""

    VOID = ("meta", "br", "link", "img", "path", "use")

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.links: list[str | None] = []
        self.sources: list[str | None] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.links += [attributes["href"]] if tag == "a" else []
        self.sources += [attributes[name] for name in ("src", "data") if name in attributes]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.text.append(data)


def compose_report(results, baseline: str = BASELINE) -> Report:
    found = evidence_of(results, baseline)
    return compose.compose(found)


def text_of(results: Any) -> str:
    """REPORT.txt without plots, which take long to draw, however long; each run of blanks is one."""
    return " ".join(txt.render(compose_report(results), None).split())


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.fixture
def page(written_cpu):
    parser = Page()
    parser.feed((written_cpu / "REPORT.html").read_text())
    return parser


def test_no_line_of_the_text_is_wider_than_100_columns(written_cpu, written_gpu):
    for folder in (written_cpu, written_gpu):
        lines = (folder / "REPORT.txt").read_text().splitlines()
        assert max(map(len, lines)) <= 100
        assert [line for line in lines if line != line.rstrip()] == []


def test_the_answer_comes_first(written_cpu):
    lines = (written_cpu / "REPORT.txt").read_text().splitlines()
    assert lines[4] == "Answer"
    assert facts(lines[6])[:3] == ["vit_tiny", "b8", "end_to_end"]
    assert lines[7].split()[:2] == ["Use", "int8/ort_cpu/default,"]


def test_the_page_and_a_text_without_a_limit_hold_every_number(cpu_study):
    made = compose_report(cpu_study)
    text, page = txt.render(made, None), html.render(made)
    numbers = [cell.text for t in made.tables if not t.csv_only for row in t.rows for cell in shown_numbers(t, row)]
    assert len(numbers) > 150
    assert [number for number in numbers if number not in text or number not in page] == []


def shown_numbers(table: Table, row: tuple[Cell, ...]) -> list[Cell]:
    return [row[index] for index in table.shown if table.columns[index].kind == "number" and not row[index].missing]


def test_the_page_is_well_formed_and_asks_for_nothing_from_outside(written_cpu, page):
    assert page.open == []
    assert page.sources == []
    assert [link for link in page.links if link.startswith(("http", "//"))] == []
    source = (written_cpu / "REPORT.html").read_text()
    assert "@import" not in source and "url(http" not in source
    assert "default-src 'none'" in source


def test_each_link_of_the_page_leads_somewhere(written_cpu, page):
    anchors = set(re.findall(r'id="([^"]+)"', (written_cpu / "REPORT.html").read_text()))
    assert len(page.links) > 30
    for link in page.links:
        assert link[1:] in anchors if link.startswith("#") else (written_cpu / link).exists(), link


def test_names_with_markup_are_text_on_the_page(results):
    reason = '<script>alert("x")</script> & [bold]'
    results.refused("vit/fp32/tensorrt/default/b1", reason)
    results.plan()
    page = html.render(compose_report(results))
    assert page.count("<script") == 1
    assert "&lt;script&gt;" in page
    assert reason in text_of(results)


def test_words_between_backticks_are_code_and_still_escaped():
    assert facts(html.prose("set `tf32: <b>` & go")) == ["<code>tf32", "&lt;b&gt;</code>"]


def test_the_inline_plots_are_xml_and_their_ids_do_not_collide(written_cpu):
    plots = re.findall(r"<svg.*?</svg>", (written_cpu / "REPORT.html").read_text(), flags=re.S)
    assert len(plots) == 14
    for plot in plots:
        ET.fromstring(plot)
        assert '<g id="' not in plot


def test_a_plot_links_its_file_by_its_kind(written_gpu):
    page = (written_gpu / "REPORT.html").read_text(encoding="utf-8")
    assert '<a href="plots/waterfall-vit_tiny.svg">SVG</a>' in page and ">PNG<" not in page


def test_every_plot_is_a_file_of_its_own_too(written_gpu):
    assert sorted(path.name for path in (written_gpu / "plots").iterdir()) == [
        "accuracy_speed-vit_tiny.svg",
        "answer-vit_tiny.svg",
        "batch_device-vit_tiny.svg",
        "batch_end_to_end-vit_tiny.svg",
        "distribution-vit_tiny.svg",
        "latency_device-vit_tiny.svg",
        "latency_end_to_end-vit_tiny.svg",
        "percentiles-vit_tiny.svg",
        "speed_up-vit_tiny.svg",
        "stages-vit_tiny.svg",
        "waterfall-vit_tiny.svg",
    ]


def test_a_plot_that_lacks_its_data_is_named_with_the_reason(written_cpu):
    text = " ".join((written_cpu / "REPORT.txt").read_text().split())
    assert re.search(r"of vit_tiny, minilm, \w+ device_ms [a-z ]+: Latency, device;", text)


def test_the_same_results_give_the_same_bytes_and_leave_no_stale_files(results):
    results.ok("vit/fp32/ort_cpu/default/b1", 10.0)
    results.plan()
    folder = results.root / "reports" / results.study
    contents = []
    for _ in range(2):
        report.write(results.root, results.study, results.machine, BASELINE)
        contents.append({path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()})
        (folder / "plots" / "stale.svg").touch()
    assert contents[0] == contents[1]


def test_a_csv_has_numbers_in_full_and_reasons_for_what_is_missing(written_cpu):
    row = rows_of(written_cpu / "csv" / "throughput.csv")[0]
    assert float(row["back_to_back_items_per_s"]) == pytest.approx(54.0, rel=0.02)
    assert row["pipelined_items_per_s"] == ""
    assert facts(row["not_measured"]) == ["pipelined_items_per_s", "overlap_percent", "not", "GPU"]


def test_refusals_are_grouped_by_reason_and_counted(written_cpu):
    rows = rows_of(written_cpu / "csv" / "refused.csv")
    assert [(row["reason"], row["count"]) for row in rows] == [
        (NO_GPU, "12"),
        (INT8_IN_TORCH, "2"),
    ]


def test_a_failed_build_keeps_the_message_of_the_parser(cpu_study):
    message = "In node 12 with name /encoder/layer.0/MatMul and operator: QuantizeLinear (checkScale)"
    assert message in text_of(cpu_study)


def test_an_engine_shows_how_many_kernels_its_builder_listed_and_what_its_products_read(results):
    half, scale = {"dims": [8, 16], "dtype": "fp16"}, {"dims": [1], "dtype": "fp32"}
    product = {"kind": "gemm", "nodes": ["/fc/MatMul"], "weights": "fp16", "inputs": [half], "outputs": [half]}
    layers = [
        {"name": "/fc/MatMul_1", **product},
        {"name": "/fc/MatMul_2", **product},
        {"name": "/fc/MatMul_3", **product, "weights": "int8", "inputs": [{"dims": [8, 16], "dtype": "int8"}, scale]},
        {"name": "wait_1", "kind": "wait"},
        {"name": "__myl_Add_1", "kind": "kgen", "inputs": [half], "outputs": [half]},
    ]
    for variant, listed in (("default", {"layers": layers}), ("silent", {})):
        results.refused(f"vit/int8/tensorrt_rtx/{variant}/b8", "no GPU")
        build = {"status": "ok", "reason": None, "seconds": 4.0, "bytes": 15_000_000, **listed}
        results.write(f"{results.machine}/engine/vit/int8/tensorrt_rtx/{variant}/b8.build.json", build)
    results.plan()
    shown = next(table for table in compose_report(results).tables if table.name == "engines")
    columns = [column.key for column in shown.columns]
    places = [columns.index(key) for key in ("variant", "kernels", "products")]
    rows = [[row[place] for place in places] for row in table_of(results, "engines")]
    assert rows == [["default", "4", "3: 2 fp16, 1 int8"], ["silent", "–", "–"]]
    kernels = table_of(results, "engine_layers")
    assert [row[6] for row in kernels] == ["0", "1", "2", "3"]
    assert [row[9:12] for row in kernels[2:]] == [["gemm", "int8", ""], ["elementwise", "fp16", ""]]


def test_engines_of_shapes_and_variants_that_the_study_no_longer_has_are_not_listed(results):
    build = {"status": "ok", "reason": None, "seconds": 4.0, "bytes": 15_000_000}
    results.refused("vit/int8/tensorrt_rtx/default/b8", "no GPU")
    for case in ("default/b8", "default/b1", "old/b8"):
        for machine in (results.machine, "aot-sm120"):
            results.write(f"{machine}/engine/vit/int8/tensorrt_rtx/{case}.build.json", build)
    results.plan()
    assert [row[:6] for row in table_of(results, "engines")] == [
        [machine, "vit", "b8", "int8", "tensorrt_rtx", "default"] for machine in (results.machine, "aot-sm120")
    ]


def test_engines_built_several_times_show_the_spread_between_builds(results):
    for variant, ms, options in (("default", 1.0, {}), ("again", 1.2, {"rebuild": 1}), ("opt5", 0.5, {"level": 5})):
        case = f"vit/fp16/tensorrt/{variant}/b8"
        results.ok(case, ms, rounds=3, gpu=True)
        build = {"status": "ok", "reason": None, "seconds": 40.0, "bytes": 15_000_000, "options": options}
        results.write(f"{results.machine}/engine/{case}.build.json", build)
    results.plan()
    (row,) = table_of(results, "rebuilds")
    assert row[:6] == ["vit", "b8", "fp16", "tensorrt", "2", "default"]
    assert row[7] == "again"
    assert row[9] == "20 %"


def test_a_failed_self_check_is_shown_though_its_case_failed(results):
    checks = {"call is not faster than device": {"passed": False, "detail": "call 1 ms, device 2 ms"}}
    results.ok("vit/fp32/ort_cpu/default/b1", 10.0, checks=checks, status="failed", reason="self-check")
    results.plan()
    text = text_of(results)
    assert states(text, "0", "1", "self-check", "passed")
    assert states(text, "call", "1 ms", "device", "2 ms")


def test_a_self_check_that_could_not_be_made_is_neither_passed_nor_failed(results):
    checks = {
        "outputs_finite": {"passed": True, "detail": "1 outputs"},
        "outputs_match": {"not_measured": "ONNX Runtime has no such operator"},
    }
    results.ok("vit/fp32/ort_cpu/default/b1", 10.0, checks=checks)
    results.plan()
    text = text_of(results)
    assert states(text, "1", "1", "self-check", "passed")
    assert states(text, "outputs_match", "not", "1", "ONNX", "Runtime", "no")


def test_no_cases_csv_is_one_line(results):
    with pytest.raises(UserError, match=naming("cases.csv", "no")):
        report.write(results.root, results.study, results.machine, BASELINE)


def test_a_record_of_another_schema_is_left_out_and_its_case_broken(results):
    results.ok("vit/fp32/ort_cpu/default/b1", 10.0, schema=99)
    results.ok("vit/fp16/ort_cpu/default/b1", 10.0)
    results.plan()
    text = text_of(results)
    assert mentions(text, "r0.json", "schema: 1 was expected")
    assert mentions(text, "1 measured")


def test_broken_jobs_give_a_partial_report_with_the_end_of_the_log(results):
    results.broken("vit/fp8/ort_cpu/default/b1")
    results.plan()
    results.write("log/onnx/vit/fp8.log", "Traceback\nValueError: amax is 0\n\n")
    report.write_partial(results.root, results.study, results.machine, BASELINE)
    folder = results.root / "reports" / results.study
    text = " ".join((folder / "REPORT.partial.txt").read_text().split())
    assert "INCOMPLETE" in text
    assert states(text, "vit/fp8/ort_cpu/default/b1", "no", "broke", "ValueError", "0")
    assert not (folder / "REPORT.txt").exists()


def test_a_partial_report_needs_no_cases_csv_and_a_whole_one_removes_it(results):
    results.ok("vit/fp32/ort_cpu/default/b1", 10.0)
    report.write_partial(results.root, results.study, results.machine, BASELINE)
    partial = results.root / "reports" / results.study / "REPORT.partial.txt"
    assert mentions(partial.read_text(), "cases.csv is not written")
    results.plan()
    report.write(results.root, results.study, results.machine, BASELINE)
    assert not partial.exists()


@pytest.fixture
def drawn_by(results, monkeypatch):
    """Writes a report with so many `--processes`, but draws nothing; says how many would have drawn."""
    used: list[int] = []

    def over(processes):
        used.append(processes)
        return contextlib.nullcontext(spread.HERE)

    def write(processes: int) -> int:
        where = [str(results.root), "--study", results.study, "--machine", results.machine]
        assert cli.main(["report", *where, "--processes", str(processes)]) == 0
        return used.pop()

    monkeypatch.setattr(render, "every", lambda drawings, _: lambda: ["<svg></svg>"] * len(drawings))
    monkeypatch.setattr(spread, "over", over)
    results.ok("vit/fp32/ort_cpu/default/b1", 10.0)
    results.ok("vit/fp16/ort_cpu/default/b1", 5.0)
    results.plan()
    return write


def test_no_more_processes_draw_than_are_allowed(drawn_by, monkeypatch):
    monkeypatch.setattr(figures, "PLOTS_OF_A_PROCESS", 1)
    assert [drawn_by(processes) for processes in (1, 2, 3)] == [1, 2, 3]


def test_few_plots_are_worth_no_second_process(drawn_by):
    assert drawn_by(64) == 1


def test_environment_facts_are_flat_and_null_is_not_known(results):
    results.refused("vit/fp32/ort_cuda/default/b1", "no GPU")
    results.plan()
    content = {"gpus": [{"name": "X"}], "nsys": None, "providers": ["A", "B"]}
    results.write(f"{results.machine}/environment.json", content)
    table = next(t for t in compose_report(results).tables if t.name == "environment")
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["gpus.0.name", "X"],
        ["nsys", "not known"],
        ["providers", "A, B"],
    ]


def table_of(results: Any, name: str) -> list[list[str]]:
    table = next(t for t in compose_report(results).tables if t.name == name)
    return [[cell.text for cell in row] for row in table.rows]


def test_an_fp16_graph_with_a_product_left_in_fp32_is_marked(gpu_study):
    table = next(t for t in compose_report(gpu_study).tables if t.name == "audit")
    left = [column.key for column in table.columns].index("left_behind")
    assert [(row[1].text, row[left].text, row[left].mark) for row in table.rows[:2]] == [
        ("fp32", "–", None),
        ("fp16", "1", "warn"),
    ]


def test_advice_that_formats_share_stands_once(cpu_study):
    advice = "vit_tiny fp32, fp16: size 197 (k of 24 products) is no multiple of 16: padded to 208"
    assert text_of(cpu_study).count(advice) == 1


def test_a_throttled_gpu_is_said_to_have_been_throttled_and_energy_keeps_its_reason(gpu_study):
    text = text_of(gpu_study)
    assert mentions(text, "power cap: all 12")
    assert states(text, "not", "0.40 s", "1 s")


def test_clocks_and_throttling_are_those_of_the_measured_loop_and_watts_those_of_its_energy(gpu_study):
    path = next(gpu_study.root.rglob("fp16/ort_cuda/default/b1/r0.json"))
    record = json.loads(path.read_text(encoding="utf-8"))
    record["telemetry"]["energy"] = {"mean_w": 405.0, "j_per_inference": 0.16, "window_s": 1.2}
    path.write_text(json.dumps(record), encoding="utf-8")
    telemetry = [row[5:] for row in table_of(gpu_study, "telemetry") if row[1:4] == ["b1", "fp16", "ort_cuda"]]
    assert telemetry[0] == ["1,755", "58.0", "2,619", "5", "405.0", "160.0", "0", "power cap"]


def test_the_verb_says_where_the_report_is(results, capsys):
    results.ok("vit/fp32/ort_cpu/default/b1", 1.0)
    results.plan()
    root = str(results.root)
    assert cli.main(["report", root, "--study", results.study, "--machine", results.machine, "--partial"]) == 0
    assert capsys.readouterr().out == f"inferprof: wrote {root}/reports/{results.study}/REPORT.partial.txt\n"


def test_a_machine_without_cases_has_no_report(gpu_study):
    with pytest.raises(UserError, match=naming("no", "h100", "h100-80gb-hbm3-sm90-0123abcd")):
        report.write(gpu_study.root, gpu_study.study, "h100")


def test_profiled_runs_give_shares_and_no_latency(gpu_study):
    case = Case("vit_tiny", "fp16", "ort_cuda", "default", "b1")
    amounts = {"gpu_busy": 600.0, "gpu_idle": 400.0, "idle_launch": 300.0, "idle_sync": 0.0, "idle_copy": 50.0}
    amounts |= {"idle_queued": 20.0, "idle_end": 30.0, "idle_unknown": 0.0, "launches": 261.0, "syncs": 2.0}
    place = {"level": "range", "name": "iteration", "instances": 10, "device": 0}
    rows: list[dict[str, Any]] = [{**place, "metric": name, "value": value} for name, value in amounts.items()]
    for name, value in (("gemm", 750.0), ("softmax" * 20, 250.0)):
        rows.append({"level": "kernel", "name": name, "metric": "duration_total", "value": value, "instances": 10})
    frame = schema.of_case(schema.conform(pd.DataFrame(rows), "nsys"), gpu_study.machine, case)
    path = gpu_study.root / gpu_study.machine / "table" / "nsys" / f"{case.path}.parquet"
    path.parent.mkdir(parents=True)
    frame.to_parquet(path)
    assert table_of(gpu_study, "timeline") == [
        [
            "vit_tiny",
            "b1",
            "fp16",
            "ort_cuda",
            "default",
            "nsys",
            "0",
            "–",
            "60.0",
            "30.0",
            "0.0",
            "5.0",
            "5.0",
            "261",
            "2",
        ]
    ]
    kernels = [(row[6], row[7], row[9]) for row in table_of(gpu_study, "kernels")]
    assert kernels == [("75.0", "10", "gemm"), ("25.0", "10", ("softmax" * 20)[:31] + "…")]


def test_in_a_table_that_is_too_wide_names_break_behind_underscores_and_hyphens():
    lines = rendered("torch_compile-max", numbers=7)
    assert [line.split()[0] for line in lines[-3:]] == ["torch_", "compile-", "max"]
    assert max(map(len, lines)) <= 100


def test_a_name_of_several_parts_breaks_between_them_however_long_it_is():
    lines = rendered("fp16/torch_eager/shared_largest_first", numbers=6)
    assert [line.split()[0] for line in lines[-2:]] == ["fp16/torch_eager/", "shared_largest_first"]


def test_where_a_sentence_can_be_folded_no_name_is():
    columns = (Column("name", "name"), Column("said", "said"), *(Column(f"n{i}", "n", "number") for i in range(6)))
    cells = (words("copy_over_floor"), words("a few words that can be folded"))
    numbers = tuple(Cell("1,234,567.8", 1234567.8) for _ in range(6))
    table = Table("t", "", columns, ((*cells, *numbers),))
    lines = txt.render(Report("t", "s", (SectionContent("x", (table,)),))).splitlines()
    assert any(line.startswith("copy_over_floor a few") for line in lines)
    assert max(map(len, lines)) <= 100


def test_columns_move_together_before_a_name_breaks():
    lines = rendered("torch_compile", numbers=7)
    assert lines[-1] == " ".join(["torch_compile", *["1,234,567.8"] * 7])
    assert max(map(len, rendered("torch_compile", numbers=6))) == 13 + 6 * (2 + 11)


def test_a_heading_that_is_wider_than_its_numbers_cannot_be_folded():
    titles = [*["unexplained"] * 6, "unexplained_rest"]
    columns = (Column("name", "name"), *(Column(f"n{i}", title, "number") for i, title in enumerate(titles)))
    table = Table("t", "", columns, ((words("vit_base"), *(Cell("0.4", 0.4) for _ in titles)),))
    lines = txt.render(Report("t", "s", (SectionContent("x", (table,)),))).splitlines()
    assert lines[-1].split() == ["vit_base", *["0.4"] * 7]


def test_sentences_are_wrapped_before_a_name_breaks():
    columns = (Column("fact", "fact"), Column("value", "value"))
    names = ("gpus.0.memory_mib", "packages.of-a-name-that-is-forty-one-long")
    cells = tuple(
        (Cell(name, name), Cell(text, text)) for name, text in zip(names, ("81559", "word " * 14), strict=True)
    )
    lines = txt.render(Report("t", "s", (SectionContent("x", (Table("t", "", columns, cells),)),))).splitlines()
    assert [line.split()[0] for line in lines[-3:-1]] == list(names)


def rendered(name: str, numbers: int) -> list[str]:
    """The lines of a report with one row: a name and numbers of eleven characters."""
    columns = (Column("a", "a"), *(Column(f"n{index}", "n", "number") for index in range(numbers)))
    cells = (Cell(name, name), *(Cell("1,234,567.8", 1234567.8) for _ in range(numbers)))
    return txt.render(Report("t", "s", (SectionContent("x", (Table("t", "", columns, (cells,)),)),))).splitlines()


def test_numbers_that_do_not_fit_the_page_are_folded_and_never_cut():
    columns = tuple(Column(f"n{index}", "n", "number") for index in range(12))
    cells = tuple(Cell("1,234,567.8", 1234567.8) for _ in columns)
    lines = txt.render(Report("t", "s", (SectionContent("x", (Table("t", "", columns, (cells,)),)),))).splitlines()
    assert sum(character.isdigit() for line in lines for character in line) == 12 * 8
    assert max(map(len, lines)) <= 100


def test_a_sentence_is_folded_at_100_columns_and_lists_are_indented():
    blocks = (Text("word " * 30), Text("item " * 30, "item"), Text("second", "item"))
    lines = txt.render(Report("t", "s", (SectionContent("x", blocks),))).splitlines()
    assert lines[6] == ("word " * 20).strip()
    assert lines[9].startswith("  - item") and lines[10].startswith("    item") and lines[11] == "  - second"


def test_a_study_without_cases_has_a_report_that_says_so(results):
    results.plan()
    report.write(results.root, results.study, results.machine, BASELINE)
    text = (results.root / "reports" / results.study / "REPORT.txt").read_text()
    assert "0 cases: none." in text
    assert "No case was measured" in text


def test_a_study_in_which_everything_failed_has_a_report_with_the_reasons(results):
    results.failed("vit/fp32/ort_cuda/default/b1", "CUDA out of memory")
    results.plan()
    report.write(results.root, results.study, results.machine, None)
    text = (results.root / "reports" / results.study / "REPORT.txt").read_text()
    assert mentions(text, "1 case failed")
    assert "CUDA out of memory" in text
    assert mentions(text, "vit", "no case")


def test_long_and_foreign_names_stay_inside_the_page(results):
    results.refused("modèle-日本/fp32/tensorrt/default/b1", "x" * 5000)
    results.plan()
    lines = txt.render(compose_report(results)).splitlines()
    assert sum(line.count("x") for line in lines) >= 5000
    assert max(map(len, lines)) <= 100


def test_a_verdict_on_the_page_has_its_mark_and_links_to_its_file(written_cpu):
    page = (written_cpu / "REPORT.html").read_text()
    assert '<a class="fail" href="../../onnx/minilm/int8.accuracy.json">fail</a>' in page
    records = "../../cpu-sample-0123abcd/benchmark/vit_tiny/int8/ort_cpu/default/b1/r0.json"
    assert f'<a href="{records}">11.43</a>' in page


def test_of_too_many_answers_as_many_are_shown_as_fit() -> None:
    cards = [Card(f"model {index}", (("Use", "this"), ("Why", "that"), ("Next", "more"))) for index in range(100)]
    lines = txt.render(Report("t", "s", (SectionContent("Answer", tuple(cards)),))).splitlines()
    assert txt.LINES - 5 <= len(lines) <= txt.LINES
    assert sum(line.startswith("model ") for line in lines) == 58


def test_how_to_reproduce_names_the_files_that_models_were_exported_from(results: Any) -> None:
    results.ok("net/fp32/ort_cpu/default/b1", 1.0)
    results.plan()
    own = {"models/net.yaml": "a" * 64, "models/net.py": "b" * 64}
    results.write("onnx/net/fp32.convert.json", {"method": "x", "bytes": 1, "made_from": own})
    (told,) = [b.text for b in method.reproduce.build(evidence_of(results, BASELINE)) if "net.yaml" in b.text]  # type: ignore[union-attr]
    assert states(told, "models/net.yaml", "SHA-256", "a" * 12, "models/net.py", "SHA-256", "b" * 12)
