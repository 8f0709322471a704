"""What the page's script draws: its data against the tables, and the traces beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inferprof.explain import explain, page
from inferprof.profilers import nsys
from inferprof.report import compose, html, interactive, read, txt
from inferprof.report.model import Report, Widget
from inferprof.tables.trace.kernel_compare import by_name

TRACED = ("h100_ort_cuda_minilm", "h100_ort_cuda_graph_vit_tiny")
"""The captures of the two cases of `traced`."""
CASES = ("vit/fp16/ort_cuda/default/b1", "vit/fp32/ort_cuda/default/b1")


def written(results: Any) -> tuple[list[Widget], dict[str, Any], Path]:
    folder = results.root / "reports" / results.study
    evidence = read(results.root, results.study, results.machine, "fp32/ort_cuda/default")
    widgets, data = interactive.begin(evidence, folder)()
    return widgets, json.loads(data), folder


def unpacked(track: dict[str, Any]) -> list[list[int]]:
    """name, node, start, ns, row of each event of a track."""
    rows = [track["events"][i : i + 5] for i in range(0, len(track["events"]), 5)]
    start = 0
    for row in rows:
        start = row[2] = start + row[2]
    return rows


def test_a_timeline_of_the_page_is_the_trace_beside_it_event_by_event(traced):
    _, data, folder = written(traced)
    for line in data["timelines"]:
        trace = json.loads((folder / line["trace"]).read_text())
        complete = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        events = [event for track in line["tracks"] for event in unpacked(track)]
        assert [(data["names"][e[0]], e[2], e[3]) for e in events] == [
            (e["name"], round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in complete
        ]
        assert all(max(event[4] for event in unpacked(track)) < track["rows"] for track in line["tracks"])
    kinds = {track["kind"]: len(unpacked(track)) for track in data["timelines"][1]["tracks"]}
    assert kinds == {"range": 6, "call": 3, "sync": 1, "kernel": 284, "copy": 2, "idle": 286}


def test_the_kernels_of_the_page_give_the_difference_of_the_tables(traced, captured):
    _, data, _ = written(traced)
    a, b = ({data["names"][n]: (count, ns) for n, count, ns in case["rows"]} for case in data["kernels"])
    expected = by_name(*(nsys.read(captured(capture)) for capture in TRACED))
    assert len(expected) == len(a.keys() | b.keys()) > 10
    for row in expected.to_dict("records"):
        change = b.get(row["name"], (0, 0))[1] - a.get(row["name"], (0, 0))[1]
        assert change == pytest.approx(row["change"])
        assert data["classes"][data["names"].index(row["name"])] == row["kernel_class"]


def test_the_search_has_every_case_with_its_outcome_and_the_winners_timeline_comes_first(traced):
    widgets, data, _ = written(traced)
    assert dict(data["cases"]) == {**dict.fromkeys(CASES, "ok"), "vit/nvfp4/tensorrt/default/b1": "refused"}
    assert data["timelines"][data["first"]]["case"] == "vit/fp16/ort_cuda/default/b1"
    assert [(w.kind, len(w.files)) for w in widgets] == [("iteration", 2), ("compare", 0)]


def test_beyond_the_pages_share_a_timeline_is_a_trace_file_alone(traced, monkeypatch):
    monkeypatch.setattr(interactive, "MOST_BYTES", 20_000)
    _, data, folder = written(traced)
    assert [line["tracks"] is None for line in data["timelines"]] == [False, True]
    assert all((folder / line["trace"]).stat().st_size > 20_000 for line in data["timelines"])


def test_stale_traces_go_and_a_study_without_captures_has_no_widgets(results):
    results.ok("vit/fp32/ort_cpu/default/b1", 10.0)
    results.plan()
    stale = results.root / "reports" / results.study / "traces/nsys/x.json"
    stale.parent.mkdir(parents=True)
    stale.touch()
    widgets, data, folder = written(results)
    assert widgets == []
    assert list((folder / "traces").rglob("*")) == []
    assert data["cases"] == [["vit/fp32/ort_cpu/default/b1", "ok"]]


def test_widgets_stand_in_their_sections_on_the_page_and_in_no_text(traced):
    widgets, data, _ = written(traced)
    evidence = read(traced.root, traced.study, traced.machine, None)
    plain = compose.compose(evidence)
    report = compose.with_widgets(plain, widgets, json.dumps(data))
    assert txt.render(report) == txt.render(plain)
    page_text = html.render(report)
    timeline = page_text.partition('<section id="timeline">')[2].partition("</section>")[0]
    assert timeline.count('<div class="widget" id="iteration">') == 1
    assert timeline.count(" download>") == 2
    bare = compose.with_widgets(Report("t", "s", ()), widgets, "")
    assert [(section.title, section.place) for section in bare.sections] == [
        ("Timeline", 150),
        ("Kernels of two cases", 190),
    ]


def test_no_name_ends_the_block_of_data(traced):
    widgets, data, _ = written(traced)
    name = "</script><script>alert(1)</script><!--"
    report = compose.with_widgets(Report("t", "s", ()), widgets, json.dumps(data | {"names": [name]}))
    block = html.render(report).partition('id="data">')[2].partition("</script>")[0]
    assert json.loads(block)["names"] == [name]


def test_a_page_of_explain_has_the_same_parts(repository: Path, tmp_path: Path):
    data = repository / "tests/data/nsys"
    cases = explain([data / "h100_torch_eager.sqlite.xz", data / "h100_tensorrt_vit2.sqlite.xz"])
    folder = page.write(cases, tmp_path / "out").parent
    source = (folder / "REPORT.html").read_text(encoding="utf-8")
    block = json.loads(source.partition('id="data">')[2].partition("</script>")[0])
    assert [line["tool"] for line in block["timelines"]] == ["nsys", "nsys"]
    assert [len(case["rows"]) for case in block["kernels"]] == [11, 20]
    assert '<div class="widget" id="iteration">' in source
    assert '<div class="widget" id="compare">' in source
    assert source.count('<div class="card listed">') == 2
    assert (folder / "ANSWER.txt").read_text() == ""
    text = (folder / "REPORT.txt").read_text(encoding="utf-8")
    assert text.count("\n  - cause: ") == 2
