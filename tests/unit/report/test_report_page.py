"""The page as a reader has it: whole whatever the names in it are, and alive in a browser."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from inferprof import report
from inferprof.case import Case
from inferprof.explain import explain, page
from inferprof.tables import schema

CHUNK = 1 << 20
BASELINE = "fp32/ort_cpu/default"
AXE = Path(__file__).resolve().parents[3] / "node_modules/axe-core/axe.min.js"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ATTACK = "<img src=x onerror=\"document.title='broken in'\">'\"&amp;</td></table><script>alert(1)</script>$x^{日本"
KERNEL = f"void {ATTACK}<" + "float, " * 700 + ">"
VOID = {"meta", "br", "link", "img", "input", "path", "use", "rect", "line", "circle"}


class Elements(HTMLParser):
    """Counts the elements of a page and checks that each is closed in its order."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        self.open: list[str] = []
        self.rows: list[int] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag == "tr":
            self.rows.append(0)
        if tag in ("td", "th"):
            self.rows[-1] += 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["style"], ["script"]):
            self.text += data


def elements(folder: Path) -> Elements:
    """The page of a report, parsed; raises where an element is not closed."""
    parser = Elements()
    parser.feed((folder / "REPORT.html").read_text(encoding="utf-8"))
    assert parser.open == []
    return parser


def write_profile(results: Any, case: str) -> None:
    """A profile of one iteration with a kernel of a terrible name."""
    place = {"level": "range", "name": "iteration", "instances": 1, "device": 0}
    amounts = {"gpu_busy": 900.0, "gpu_idle": 100.0, "idle_launch": 100.0, "duration_total": 1000.0}
    rows: list[dict[str, Any]] = [{**place, "metric": name, "value": value} for name, value in amounts.items()]
    rows.append({"level": "kernel", "name": KERNEL, "metric": "duration_total", "value": 900.0, "instances": 1})
    event = {"level": "event", "name": KERNEL, "device": 0, "stream": 7, "launch": 0}
    rows += [{**event, "metric": "start", "value": 0.0}, {**event, "metric": "duration_total", "value": 9.0}]
    rows.append({**event, "metric": "event_kind", "text": "kernel"})
    frame = schema.of_case(schema.conform(pd.DataFrame(rows), "nsys"), results.machine, Case.from_path(case))
    path = results.root / results.machine / "table" / "nsys" / f"{case}.parquet"
    path.parent.mkdir(parents=True)
    frame.to_parquet(path)


def write(results: Any) -> Path:
    """The folder of the report."""
    results.plan()
    report.write(results.root, results.study, results.machine, BASELINE)
    return Path(results.root / "reports" / results.study)


@pytest.fixture
def attacked(results: Any) -> Path:
    """A report of names that try to break out of the page, in tables, plots and lists."""
    name = ATTACK.replace("/", "∕")
    for batch in (1, 8):
        results.ok(f"vit/fp32/ort_cpu/default/b{batch}", 20.0 * batch, rounds=2)
        results.ok(f"vit/fp16/ort_cuda/{name}/b{batch}", 1.0 * batch, rounds=2, gpu=True)
    results.refused("vit/nvfp4/tensorrt/default/b1", ATTACK)
    results.failed("vit/fp16/tensorrt/default/b1", ATTACK)
    write_profile(results, f"vit/fp16/ort_cuda/{name}/b1")
    return write(results)


def test_names_with_markup_quotes_and_5000_characters_leave_the_page_whole(attacked: Path) -> None:
    page = elements(attacked)
    assert "img" not in page.counts
    assert page.counts["script"] == 2  # the page's own, and its data
    assert page.text.count(ATTACK) >= 2
    assert "onerror" in page.text


def test_every_row_of_a_table_has_as_many_cells_as_its_head(written_gpu: Path) -> None:
    page = (written_gpu / "REPORT.html").read_text(encoding="utf-8")
    tables = page.split("<table>")[1:]
    assert len(tables) > 10
    for table in tables:
        parser = Elements()
        parser.feed(f"<table>{table.partition('</table>')[0]}</table>")
        assert len(set(parser.rows)) == 1


def test_one_case_and_no_case_are_pages_too(results: Any) -> None:
    assert elements(write(results)).counts["section"] > 5
    results.ok("vit/fp32/ort_cpu/default/b1", 10.0)
    assert elements(write(results)).counts["svg"] >= 3


def test_a_record_without_its_optional_parts_leaves_the_page_whole(results: Any) -> None:
    bare: dict[str, Any] = {name: {} for name in ("stages", "throughput", "first", "memory", "checks")}
    bare["telemetry"] = {"not_measured": "x"}
    results.ok("vit/fp32/ort_cuda/default/b1", 10.0, gpu=True, **bare)
    assert "vit" in elements(write(results)).text


def test_every_number_of_a_case_links_to_a_file_that_is_there(written_gpu: Path) -> None:
    page = (written_gpu / "REPORT.html").read_text(encoding="utf-8")
    table = page.partition('href="csv/throughput.csv"')[2].partition("</table>")[0]
    cells = re.findall(r'<td class="number">(.*?)</td>', table.replace("\n", ""))
    numbers = [cell for cell in cells if "<sup>" not in cell]
    links = re.findall(r'href="([^"]+)"', "".join(numbers))
    assert len(links) == len(numbers) > 20
    assert all((written_gpu / link).exists() for link in links)


# --- in a browser ----------------------------------------------------------------------------------------------


class Browser:
    """A headless Chromium, spoken to over a pipe (Chrome DevTools Protocol), with one page open."""

    def __init__(self, program: str, folder: Path) -> None:
        ours, theirs = os.pipe(), os.pipe()
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
        command = [program, *flags, "--remote-debugging-pipe", f"--user-data-dir={folder}"]

        def place() -> None:
            reading, writing = os.dup(ours[0]), os.dup(theirs[1])  # Chromium reads from 3 and writes to 4
            os.dup2(reading, 3)
            os.dup2(writing, 4)

        self._process = subprocess.Popen(
            command, pass_fds=(3, 4), preexec_fn=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(ours[0])
        os.close(theirs[1])
        self._to, self._from = ours[1], theirs[0]
        self._count = 0
        self._read = b""
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    _session: str | None = None

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events on the way are kept."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._count:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            chunk = os.read(self._from, CHUNK)
            assert chunk, "the browser ended"
            self._read += chunk
        message, _, self._read = self._read.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def open(self, path: Path) -> None:
        """Load a file, to its end."""
        self.events.clear()
        self.ask("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def run(self, script: str) -> Any:
        """The value of an expression on the page, or of what it promises."""
        result = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def close(self) -> None:
        """End the browser."""
        with contextlib.suppress(AssertionError, BrokenPipeError):
            self._session = None
            self.ask("Browser.close")
        self._process.wait(timeout=20)
        os.close(self._to)
        os.close(self._from)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    opened = Browser(program, tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


def complaints(browser: Browser) -> list[dict[str, Any]]:
    """Errors, warnings and exceptions of the page, and what it loaded beside itself."""
    told = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
    asked = [event["params"] for event in browser.events if event.get("method") == "Network.requestWillBeSent"]
    others = [one for one in asked if not one["request"]["url"].endswith("/REPORT.html")]
    return [event for event in browser.events if event.get("method") in told] + others


def test_the_page_has_nothing_to_complain_of_and_loads_nothing(browser: Browser, written_gpu: Path) -> None:
    browser.open(written_gpu / "REPORT.html")
    assert complaints(browser) == []


def test_markup_in_names_does_nothing_in_a_browser(browser: Browser, attacked: Path) -> None:
    browser.open(attacked / "REPORT.html")
    assert complaints(browser) == []
    assert browser.run("document.title") == "inferprof: study sample"
    assert browser.run("document.querySelectorAll('main img, main script').length") == 0


COLUMN = """(name, column) =>
    [...document.querySelector(`a[href="csv/${name}.csv"]`).closest("table").tBodies[0].rows]
    .filter(row => !row.hidden).map(row => row.cells[column].innerText)"""


def test_a_click_on_a_column_sorts_by_it_up_then_down_then_as_it_was(browser: Browser, written_gpu: Path) -> None:
    browser.open(written_gpu / "REPORT.html")
    head = 'document.querySelector(\'a[href="csv/end_to_end.csv"]\').closest("table").tHead.rows[0].cells[5]'
    assert browser.run(f"{head}.innerText") == "median ms"
    before = browser.run(f"({COLUMN})('end_to_end', 5)")
    numbers = sorted(before, key=lambda text: float(text.replace(",", "")))
    assert before != numbers
    seen = []
    for _ in range(3):
        browser.run(f"{head}.querySelector('button').click()")
        seen.append((browser.run(f"{head}.ariaSort"), browser.run(f"({COLUMN})('end_to_end', 5)")))
    assert seen == [("ascending", numbers), ("descending", numbers[::-1]), ("none", before)]


def test_a_drag_over_a_plot_enlarges_that_part_and_a_button_shows_all_again(
    browser: Browser, written_gpu: Path
) -> None:
    browser.open(written_gpu / "REPORT.html")
    plot = 'document.querySelector(".plot svg")'
    button = 'document.querySelector("figcaption button")'
    whole = browser.run(f"{plot}.getAttribute('viewBox')")
    browser.run(f"{plot}.scrollIntoView({{block: 'center'}})")
    left, top, width, height = browser.run(
        f"(({{left, top, width, height}}) => [left, top, width, height])({plot}.getBoundingClientRect())"
    )
    assert browser.run(f"{button}.hidden")
    for kind, part in (("mousePressed", 0.25), ("mouseMoved", 0.5), ("mouseReleased", 0.75)):
        x, y = left + part * width, top + part * height
        browser.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)
    _, _, full_width, full_height = map(float, whole.split())
    shown = [float(number) for number in browser.run(f"{plot}.getAttribute('viewBox')").split()]
    assert shown == pytest.approx(
        [full_width / 4, full_height / 4, full_width / 2, full_height / 2], abs=full_width / 100
    )
    assert browser.run(f"{plot}.clientHeight") == pytest.approx(height, abs=1)
    assert browser.run("document.querySelector('.mark')") is None
    browser.run(f"{button}.click()")
    assert (browser.run(f"{plot}.getAttribute('viewBox')"), browser.run(f"{button}.hidden")) == (whole, True)


def test_the_filter_leaves_the_rows_that_have_all_words(browser: Browser, written_gpu: Path) -> None:
    browser.open(written_gpu / "REPORT.html")
    script = """(typed) => { const input = document.querySelector('a[href="csv/end_to_end.csv"]').parentElement
        .querySelector("input"); input.value = typed; input.dispatchEvent(new Event("input"));
        return input.parentElement.querySelector("output").value }"""
    assert browser.run(f"({script})('Graph b8')") == "1 of 15"
    assert browser.run(f"({COLUMN})('end_to_end', 4)") == ["graph"]
    assert browser.run(f"({script})('')") == ""
    assert len(browser.run(f"({COLUMN})('end_to_end', 4)")) == 15


@pytest.mark.parametrize(("scheme", "background"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(13, 17, 23)")])
def test_the_page_follows_light_and_dark(browser: Browser, written_gpu: Path, scheme: str, background: str) -> None:
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.open(written_gpu / "REPORT.html")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == background
    ink = browser.run("getComputedStyle(document.querySelector('.plot svg text')).fill")
    assert ink == browser.run("getComputedStyle(document.body).color")
    browser.ask("Emulation.setEmulatedMedia", features=[])


FAULTS = """axe.run(document, {resultTypes: ["violations"]}).then(({violations}) =>
    violations.map(({id, nodes}) => [id, nodes.length, nodes[0].html.slice(0, 200)]))"""


@pytest.fixture(scope="module")
def explained(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the report that `inferprof explain --out` writes."""
    capture = repository / "tests/data/nsys/h100_ort_cuda_vit.sqlite.xz"
    return page.write(explain([capture]), tmp_path_factory.mktemp("explained")).parent


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1440])
@pytest.mark.parametrize("which", ["written_gpu", "explained"])
def test_axe_finds_no_fault_in_a_page(
    browser: Browser, request: pytest.FixtureRequest, which: str, width: int, scheme: str
) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm install --no-save axe-core")
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    browser.open(request.getfixturevalue(which) / "REPORT.html")
    browser.run(AXE.read_text(encoding="utf-8"))
    assert browser.run(FAULTS) == []
    browser.ask("Emulation.clearDeviceMetricsOverride")
    browser.ask("Emulation.setEmulatedMedia", features=[])


@pytest.mark.parametrize("width", [360, 768, 1400])
def test_no_width_makes_the_page_scroll_sideways(browser: Browser, written_gpu: Path, width: int) -> None:
    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    browser.open(written_gpu / "REPORT.html")
    assert browser.run("document.documentElement.scrollWidth") <= width
    sizes = """(plots) => Math.min(...[...document.querySelectorAll(plots)].map(svg =>
        svg.getBoundingClientRect().width / svg.viewBox.baseVal.width))"""
    letters = 8.5  # of a plot's axes, in its own units
    assert letters * browser.run(f"({sizes})('figure .plot svg')") >= 8
    assert letters * browser.run(f"({sizes})('section > figure .plot svg')") >= 9
    browser.ask("Emulation.clearDeviceMetricsOverride")


def test_the_page_prints_without_what_only_a_screen_has(browser: Browser, written_gpu: Path) -> None:
    browser.open(written_gpu / "REPORT.html")
    assert base64.b64decode(browser.ask("Page.printToPDF")["data"]).startswith(b"%PDF")
    browser.ask("Emulation.setEmulatedMedia", media="print")
    for hidden in ("nav", "caption input", "figcaption a"):
        assert browser.run(f"getComputedStyle(document.querySelector('{hidden}')).display") == "none"
    browser.ask("Emulation.setEmulatedMedia", media="")


# --- what the script draws -------------------------------------------------------------------------------------

KEYS = {"ArrowRight": 39, "Enter": 13, "/": 191, "+": 187, "Escape": 27}


def press(browser: Browser, key: str) -> None:
    for kind in ("keyDown", "keyUp"):
        browser.ask("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=KEYS[key])


def type_in(browser: Browser, selector: str, text: str) -> None:
    browser.run(f"document.querySelector('{selector}').value = '{text}'")
    browser.run(f"document.querySelector('{selector}').dispatchEvent(new Event('input'))")


def text_of(browser: Browser, selector: str) -> str:
    return str(browser.run(f"document.querySelector('{selector}').textContent"))


def settled(browser: Browser) -> str:
    """The address of the page, which follows what is shown after a quarter of a second."""
    waited = "new Promise(done => setTimeout(() => done(decodeURIComponent(location.hash)), 400))"
    return str(browser.ask("Runtime.evaluate", expression=waited, awaitPromise=True)["result"]["value"])


@pytest.fixture
def drawn(browser: Browser, written_traced: Path) -> Path:
    """The page of two traced cases, opened."""
    page = written_traced / "REPORT.html"
    browser.open(page)
    return page


def test_a_timeline_is_walked_and_zoomed_by_keys_and_its_address_shows_the_same_again(
    browser: Browser, drawn: Path
) -> None:
    assert complaints(browser) == []
    browser.run("document.querySelector('#iteration .surface').focus()")
    press(browser, "ArrowRight")
    first = text_of(browser, "#iteration .readout")
    assert "GPU 0, stream" in first and "µs from" in first
    press(browser, "ArrowRight")
    assert text_of(browser, "#iteration .readout") != first
    press(browser, "Enter")
    address = settled(browser)
    assert re.fullmatch(r"#iteration\?case=vit/fp16/ort_cuda/default/b1&tool=nsys&from=\d+&to=\d+", address)
    browser.run("location.hash = ''")
    browser.run(f"location.hash = '{address}'")
    press(browser, "+")
    narrower = [int(number) for number in re.findall(r"(?:from|to)=(\d+)", settled(browser))]
    wider = [int(number) for number in re.findall(r"(?:from|to)=(\d+)", address)]
    assert wider[0] < narrower[0] < narrower[1] < wider[1]


def test_what_is_searched_in_a_timeline_is_counted_with_its_time(browser: Browser, drawn: Path) -> None:
    data = json.loads(text_of(browser, "#data"))
    kernels = next(track for track in data["timelines"][0]["tracks"] if track["kind"] == "kernel")["events"]
    chosen = [i for i in range(0, len(kernels), 5) if "gelu" in data["names"][kernels[i]].lower()]
    took = sum(kernels[i + 3] for i in chosen)
    assert len(chosen) > 2
    type_in(browser, "#iteration input", "GELU")
    assert text_of(browser, "#iteration .bar output").startswith(f"{len(chosen)} events, {took / 1000:.4g}"[:14])


def test_two_cases_are_held_against_each_other_and_can_be_swapped(browser: Browser, drawn: Path) -> None:
    data = json.loads(text_of(browser, "#data"))
    totals = [sum(ns for *_, ns in case["rows"]) / 1e6 for case in data["kernels"]]
    said = re.findall(r"[\d.]+", text_of(browser, "#compare .readout"))
    assert [float(number) for number in said[:2]] == pytest.approx(totals, rel=0.01)
    browser.run("document.querySelector('#compare button').click()")
    again = re.findall(r"[\d.]+", text_of(browser, "#compare .readout"))
    assert again[:2] == said[1::-1]
    names = {name for case in data["kernels"] for name, *_ in case["rows"]}
    assert browser.run("document.querySelectorAll('#compare table')[1].tBodies[0].rows.length") == len(names)


def test_a_slash_searches_and_enter_goes_to_the_first_hit(browser: Browser, drawn: Path) -> None:
    press(browser, "/")
    assert browser.run("document.activeElement.closest('.search') !== null")
    type_in(browser, ".search input", "case fp32 b1")
    assert browser.run("document.querySelectorAll('.search a').length") == 1
    press(browser, "Enter")
    assert settled(browser) == "#case?name=vit/fp32/ort_cuda/default/b1"
    assert set(browser.run(f"({COLUMN})('end_to_end', 2)")) == {"fp32"}
    browser.run("document.querySelector('.banner button').click()")
    assert set(browser.run(f"({COLUMN})('end_to_end', 2)")) == {"fp16", "fp32"}


def test_every_part_of_the_page_is_a_link(browser: Browser, drawn: Path) -> None:
    missing = """[...document.querySelectorAll(".here")].filter(link => !document.getElementById(
        link.getAttribute("href").slice(1))).length"""
    assert browser.run("document.querySelectorAll('.here').length") > 20
    assert browser.run(missing) == 0
    ids = browser.run("[...document.querySelectorAll('[id]:not(svg *)')].map(part => part.id)")
    assert len(ids) == len(set(ids))
