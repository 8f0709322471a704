"""Results of generators of load: where the time of a request goes, as far as client and server tell.

They are what vLLM's and SGLang's benchmarks, trtllm-bench, GenAI-Perf and AIPerf print, as text, CSV or JSON, and
perf_analyzer's text and CSV. Each writes other names for the same means; they are compared in lower case, without
units.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from inferprof.errors import UserError, in_one_line
from inferprof.files import text_of
from inferprof.findings import Answer, Bottleneck, Finding, Total
from inferprof.readers.kind import Capture, Kind, Lack, says
from inferprof.units import NS_PER_MS
from inferprof.words import ms

HEADINGS: Final = re.compile(
    r"={3,} Serving Benchmark Result ={3,}|^\W*PERFORMANCE OVERVIEW|LLM Metrics\s*$|^Metric,avg,|"
    r'"mean_ttft_ms"\s*:|"time_to_first_token"\s*:\s*\{',
    re.MULTILINE,
)
"""How results of language models begin."""
TABLE: Final = re.compile(r"^(?:Concurrency|Request Rate),Inferences/Second,.*$", re.MULTILINE)
"""The headings of perf_analyzer's CSV."""
BLOCK: Final = re.compile(
    r"^\s*Request (?:concurrency: (?P<requests>\d+)|Rate: (?P<rate>[\d.]+) inference requests per sec)", re.MULTILINE
)
"""How perf_analyzer begins what it measured at one load."""
_UNITS: Final[Mapping[str, float]] = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3}
_NAMES: Final[Mapping[str, re.Pattern[str]]] = {
    "first": re.compile(r"(?:mean|average) ttft|average time-to-first-token.*|time to first token"),
    "token": re.compile(r"(?:mean|average) tpot|average time-per-output-token.*"),
    "between": re.compile(r"mean itl|inter token latency"),
    "request": re.compile(r"mean e2e\w*(?: latency)?|average request latency|request latency"),
    "per_s": re.compile(r"request throughput"),
    "tokens_per_s": re.compile(r"(?:total )?output (?:token )?throughput"),
    "completed": re.compile(r"successful requests|number of requests|completed|request count"),
    "failed": re.compile(r"failed(?: requests)?|error request count|request error count"),
    "generated": re.compile(r"total generated tokens|total output tokens"),
    "length": re.compile(r"average output length|output sequence length|num output token"),
}
_TIMES: Final = ("first", "token", "between", "request")
_CELL: Final = re.compile(r"[│┃|]")
_LABEL: Final = re.compile(r"(?P<name>[^(\[:]+?)(?: \[[^]]*\])*(?: \((?P<unit>[^)]*)\))?$")
_NUMBER: Final = re.compile(r"\s*-?(?:\d[\d.,]*|\.\d+)(?:E[+-]?\d+)?\s*|nan|-?inf", re.IGNORECASE)
_SUM: Final = re.compile(r"(?P<name>overhead|queue|compute \w+) (?P<us>\d+) usec")


@dataclass(frozen=True)
class Answered:
    """Means over the requests of one load; times in ms. None: not told."""

    first: float | None = None
    """Until the first token."""
    token: float | None = None
    """Of each token after it."""
    request: float | None = None
    per_s: float | None = None
    tokens_per_s: float | None = None
    completed: float | None = None
    failed: float | None = None
    """Requests, whose times are in no mean."""
    by: str = "a request by the client's clock"
    """What `request` is."""


@dataclass(frozen=True)
class Served:
    """What perf_analyzer measured at one load: means of a request, µs; `stages`: what the server says of its own."""

    load: str
    per_s: float
    request: float
    stages: Mapping[str, float]


def answered(text: str) -> list[Answered]:
    """The results of language models in a text, in order.

    Raises ValueError for JSON that is cut, for a number that measures nothing, and where no request was answered.
    """
    if text.lstrip().startswith("{"):
        return [_of(_of_json(json.loads(line))) for line in _documents(text)]
    starts = [0, *(match.start() for match in list(HEADINGS.finditer(text))[1:])]  # some say a few things above
    ends = [*starts[1:], len(text)]
    return [_of(_of_lines(text[begin:end].splitlines())) for begin, end in zip(starts, ends, strict=True)]


def _documents(text: str) -> Iterator[str]:
    """One document, or as SGLang appends them one in a line."""
    lines = [line for line in text.splitlines() if line.strip()]
    yield from lines if all(line.startswith("{") and line.rstrip().endswith("}") for line in lines) else [text]


def _of(values: Mapping[str, float]) -> Answered:
    if values.get("completed") == 0:
        raise ValueError("no request was answered, so its times are of none: see the server's log")
    length = values.get("length")
    if length is None and values.get("completed") and "generated" in values:
        length = values["generated"] / values["completed"]
    token = values.get("token", values.get("between"))
    request, by = values.get("request"), Answered.by
    # A mean over tokens, where that of requests counts short answers as much.
    between = values.get("between") or token
    if request is None and length is not None and between is not None and "first" in values:
        request = values["first"] + between * max(0.0, length - 1)
        by = "a request, by the means of its first and its other tokens"
    as_told = {name: values.get(name) for name in ("first", "per_s", "tokens_per_s", "completed", "failed")}
    return Answered(token=token, request=request, by=by, **as_told)


def _of_json(document: Mapping[str, Any]) -> dict[str, float]:
    values: dict[str, float] = {}
    for key, value in document.items():
        name, _, end = key.rpartition("_")
        unit = end if end in _UNITS else ""
        if isinstance(value, Mapping):
            unit = str(value.get("unit", ""))
            value = value.get("avg")
        _take(values, (name if unit == end else key).replace("_", " "), unit, str(value))
    return values


def _of_lines(lines: Sequence[str]) -> dict[str, float]:
    """Of lines `name (unit): value`, of CSV, and of tables: the first number is the mean."""
    values: dict[str, float] = {}
    for line in lines:
        if _CELL.search(line):
            cells = [cell.strip() for cell in _CELL.split(line) if cell.strip()]
        elif ":" in line:
            cells = [part.strip() for part in line.rsplit(":", 1)]
        else:
            cells = next(csv.reader([line]), [])
        if len(cells) > 1 and (label := _LABEL.match(cells[0].rstrip(": ").strip())):
            _take(values, label["name"].strip("#*- "), label["unit"] or "", cells[1])
    return values


def _take(values: dict[str, float], name: str, unit: str, text: str) -> None:
    for key, pattern in _NAMES.items():
        if pattern.fullmatch(name.lower()) and _NUMBER.fullmatch(text):
            number = float(text.replace(",", ""))
            if values.get("completed") != 0 and not 0 <= number < math.inf:
                raise ValueError(f"{name} of {number:g}")
            values.setdefault(key, number * (_UNITS.get(unit, 1.0) if key in _TIMES else 1.0))


def served(text: str) -> list[Served]:
    """What perf_analyzer measured at each load, without those that it gave up."""
    if heading := TABLE.search(text):
        return [
            _of_row(row) for row in csv.DictReader(text[heading.start() :].splitlines()) if row["Inferences/Second"]
        ]
    begins = list(BLOCK.finditer(text))
    blocks = zip(begins, [*(match.start() for match in begins[1:]), len(text)], strict=False)
    return [load for match, end in blocks if (load := _served(match, text[match.start() : end]))]


def _of_row(row: Mapping[str, str]) -> Served:
    (kind, load), *_ = row.items()
    stages = {
        name.removeprefix("Server ").lower(): float(us) for name, us in row.items() if name.startswith("Server ")
    }
    sent = sum(float(us) for name, us in row.items() if name.startswith(("Client ", "Network+")))
    return Served(f"{kind.lower()} {load}", float(row["Inferences/Second"]), sent + sum(stages.values()), stages)


def _served(match: re.Match[str], block: str) -> Served | None:
    per_s = re.search(r"Throughput: ([\d.]+) infer/sec", block)
    client = re.search(r"Avg (?:latency|HTTP time|gRPC time): (\d+) usec \(", block)
    server = re.search(r"Avg request latency: (\d+) usec \((.*)\)", block)
    whole = client or server
    if per_s is None or whole is None:
        return None
    stages = {stage["name"]: float(stage["us"]) for stage in _SUM.finditer(server[2])} if server else {}
    load = f"concurrency {match['requests']}" if match["requests"] else f"{match['rate']} requests per s"
    return Served(load, float(per_s[1]), float(whole[1]), stages)


TOOL: Final = "load"
SHOWN: Final = 6
FIRST: Final = 0.5
"""Ours: from this share of a request on the wait for the first token is what to work on."""
_STAGES: Final[Mapping[str, tuple[str, Bottleneck, str]]] = {
    "queue": (
        "waiting in the server's queue",
        "idle",
        "more instances of the model (instance_group), dynamic_batching, or a lower load",
    ),
    "compute input": (
        "taking the inputs to the model",
        "copy",
        "shared memory between client and server (--shared-memory=cuda), page-locked memory, narrower inputs",
    ),
    "compute infer": (
        "the model",
        "kernels",
        "the model itself: trace the server under this load (nsys profile --trace=cuda,nvtx …), then explain that",
    ),
    "compute output": (
        "taking the outputs away",
        "copy",
        "shared memory between client and server (--shared-memory=cuda), fewer or narrower outputs",
    ),
    "overhead": ("the server's overhead", "idle", "a faster host, fewer models in the ensemble"),
}
_BETWEEN: Final = "between client and server"
_ADVICE: Final[Mapping[str, tuple[Bottleneck, str]]] = {
    **{part: (bottleneck, advice) for part, bottleneck, advice in _STAGES.values()},
    _BETWEEN: ("copy", "a client on the same host, gRPC, shared memory, fewer bytes a request"),
}
_TRACE: Final = Lack(
    "what the GPU does in that time", "nsys profile --trace=cuda,nvtx … around the server, under the same load"
)
_WHERE: Final = Lack("where a request spends its time", "perf_analyzer against Triton, not --service-kind=…")


def read(path: Path) -> Capture:
    """What the results of the last load say. Raises UserError where there are none."""
    text = text_of(path)
    if loads := served(text):
        if not any(load.per_s for load in loads):
            raise UserError(f"{path} is of no answers: perf_analyzer had 0 inferences/s; see the server's log")
        return _of_server(loads)
    try:
        results = [result for result in answered(text) if result.request or result.first or result.per_s]
    except ValueError as error:
        raise UserError(f"{path} is cut short, damaged or of no answers ({in_one_line(error)})") from None
    if not results:
        raise UserError(f"{path} holds results of a load, and no times of requests: copy them as a whole")
    lines = ["; ".join([_line(result), *_failed(result)]) for result in results]
    notes = [f"load {number} of {len(results)}: {line}" for number, line in enumerate(lines, 1)]
    return _of_tokens(results[-1], notes if results[1:] else [])


def _line(result: Answered) -> str:
    said = (
        result.per_s is not None and f"{_plain(result.per_s)} requests/s",
        result.tokens_per_s is not None and f"{_plain(result.tokens_per_s)} tokens/s",
        result.request is not None and f"a request {ms(result.request * NS_PER_MS)}",
        result.first is not None and f"its first token {ms(result.first * NS_PER_MS)}",
        result.token is not None and f"each further one {ms(result.token * NS_PER_MS)}",
    )
    return ", ".join(part for part in said if part)


def _failed(result: Answered) -> list[str]:
    """How many requests failed, of how many where that is told."""
    if not result.failed:
        return []
    of = "" if result.completed is None else f" of {result.failed + result.completed:,.0f}"
    return [f"{result.failed:,.0f}{of} requests failed: their times are in no mean"]


def _plain(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def _of_tokens(result: Answered, notes: list[str]) -> Capture:
    """A language model's answers: the first token, and the others."""
    first, request = result.first, result.request
    parts: dict[str, float] = {}
    findings = []
    if first is not None and request:
        first = min(first, request)
        parts = {"until the first token": first * NS_PER_MS, "the tokens after it": (request - first) * NS_PER_MS}
        findings = [_of_first(result, first / request) if first >= FIRST * request else _of_further(result)]
    at_once = result.per_s * request / 1e3 if result.per_s and request else None
    under_way = [f"on average {_plain(at_once)} requests were under way at once"] if at_once else []
    lacks = [] if first is not None else [Lack("when the first token came", "the same load with --streaming")]
    metric = "the server's own metrics, as vllm:request_queue_time_seconds"
    lacks += [Lack("how long requests queue before their prefill", metric), _TRACE]
    return Capture(
        TOOL,
        ["results of a load", *([_line(result)] if _line(result) else [])],
        total=Total(request * NS_PER_MS, result.by) if request and parts else None,
        parts=parts,
        answers=[Answer("load", "host", "found", findings=tuple(findings))] if findings else [],
        notes=[*_failed(result), *under_way, *notes[-SHOWN:]],
        lacks=lacks,
    )


def _of_first(result: Answered, share: float) -> Finding:
    waited = ms((result.first or 0.0) * NS_PER_MS)
    of = f"{100 * share:.0f} % of its time"
    reason = f"a request waits {waited} for its first token, {of}: prefill, and the queue before it"
    advice = (
        "a lower load (--max-concurrency, --request-rate) tells the two apart; then prefix caching, chunked prefill, "
        "more GPUs"
    )
    return Finding("", "idle", share, reason, {"share": share}, TOOL, None, advice, "medium")


def _of_further(result: Answered) -> Finding:
    share = 1 - (result.first or 0.0) / (result.request or 1.0)
    each = f", {ms(result.token * NS_PER_MS)} each" if result.token is not None else ""
    reason = f"the tokens after the first take {100 * share:.0f} % of a request{each}: decode"
    advice = (
        "each step reads all weights and the KV cache: narrower ones, CUDA graphs, speculative decoding, more GPUs; "
        "for throughput alone more requests at once"
    )
    return Finding("", "memory", share, reason, {"share": share}, TOOL, None, advice, "low")


def _of_server(loads: list[Served]) -> Capture:
    """What perf_analyzer says of the last load that was answered, with a line of each."""
    last = [load for load in loads if load.per_s][-1]
    parts = {_STAGES[name][0]: us * 1e3 for name, us in last.stages.items() if name in _STAGES and us}
    if (rest := last.request * 1e3 - sum(parts.values())) > 0 and parts:
        parts[_BETWEEN] = rest
    lines = [f"{load.load}: {load.per_s:,.5g} inferences/s, {ms(load.request * 1e3)}" for load in loads[-SHOWN:]]
    findings = [_longest(last, parts)] if parts else []
    lack = _TRACE if parts else _WHERE
    return Capture(
        TOOL,
        ["perf_analyzer", last.load, f"{last.per_s:,.5g} inferences/s"],
        total=Total(max(last.request * 1e3, sum(parts.values())), "a request by the client's clock"),
        parts=parts,
        answers=[Answer("load", "host", "found", findings=tuple(findings))] if findings else [],
        notes=lines if loads[1:] else [],
        lacks=[lack],
    )


def _longest(load: Served, parts: Mapping[str, float]) -> Finding:
    name = max(parts, key=lambda name: parts[name])
    share = parts[name] / max(load.request * 1e3, sum(parts.values()))
    bottleneck, advice = _ADVICE[name]
    reason = f"{ms(parts[name])} of a request of {ms(load.request * 1e3)}, {100 * share:.0f} %"
    return Finding(name, bottleneck, share, reason, {"share": share}, TOOL, None, advice, "medium")


LOAD_RESULTS: Final = Kind(
    name="load_results",
    title="results of a generator of load",
    recognises=says(HEADINGS, BLOCK, TABLE),
    read=read,
    rank=13,
)
