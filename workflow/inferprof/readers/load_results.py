"""Reads what generators of load print of requests to a server: vLLM's and SGLang's benchmarks, trtllm-bench,
GenAI-Perf and AIPerf, as text, CSV or JSON, and perf_analyzer's text and CSV.

Each writes other names for the same means; they are compared in lower case, without units.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

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
    "generated": re.compile(r"total generated tokens|total output tokens"),
    "length": re.compile(r"average output length|output sequence length|num output token"),
}
_TIMES: Final = ("first", "token", "between", "request")
_CELL: Final = re.compile(r"[│┃|]")
_LABEL: Final = re.compile(r"(?P<name>[^(\[:]+?)(?: \[[^]]*\])*(?: \((?P<unit>[^)]*)\))?$")
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
    length: float | None = None
    """Tokens of an answer."""
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
    """The results of language models in a text, in order. Raises ValueError for JSON that is cut."""
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
    as_told = {name: values.get(name) for name in ("first", "per_s", "tokens_per_s", "completed")}
    return Answered(token=token, request=request, length=length, by=by, **as_told)


def _of_json(document: Mapping[str, Any]) -> dict[str, float]:
    values: dict[str, float] = {}
    for key, value in document.items():
        name, _, end = key.rpartition("_")
        unit = end if end in _UNITS else ""
        if isinstance(value, Mapping):
            unit = str(value.get("unit", ""))
            value = value.get("avg")
        if isinstance(value, int | float):
            _take(values, (name if unit == end else key).replace("_", " "), unit, float(value))
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
            number = cells[1].replace(",", "")
            if re.fullmatch(r"-?[\d.]+(?:E[+-]?\d+)?", number):
                _take(values, label["name"].strip("#*- "), label["unit"] or "", float(number))
    return values


def _take(values: dict[str, float], name: str, unit: str, number: float) -> None:
    for key, pattern in _NAMES.items():
        if pattern.fullmatch(name.lower()):
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
