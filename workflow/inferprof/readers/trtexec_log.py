"""Reads what trtexec prints, of TensorRT 7.1 to 11: settings, performance summary, times of layers, warnings, and
how it ended. A file may hold several runs, one behind the other, amid the output of other programs.

Up to 8.2 the summary has other names, and in 7 a block per quantity with a line per statistic. The table of layers
has its names in front up to 8.6 and at the end since.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

RUNNING: Final = re.compile(
    r"^[\s_*]*&&&& (?P<how>RUNNING|PASSED|FAILED|WAIVED) TensorRT\.trtexec(?: \[TensorRT v(?P<version>\d+)\])?"
    r"(?: \[b\d+\])?(?: # (?P<command>.*))?",
    re.MULTILINE,
)
_PREFIX: Final = re.compile(r"^[\s_*]*(?:\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] )?\[(?P<level>[VIWEF])\] ?(?P<text>.*)$")
LOGGED: Final = re.compile(r"^[\s_*]*\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] \[[VIWEF]\] ", re.MULTILINE)
"""How the logger of trtexec begins a line, and of TensorRT's samples."""
BARE: Final = re.compile(
    r"^[\s*>-]*(?:\[I\] )?(?=Throughput: [\d.]+ qps|"
    r"(?:Latency|Enqueue Time|GPU Compute Time|[HD]2[HD] Latency): min = )",
    re.MULTILINE,
)
"""Lines of the summary without what the logger puts in front, as people quote them."""
_AVERAGE: Final = re.compile(
    r"Average on (?P<runs>\d+) runs - GPU latency: (?P<gpu>[\d.]+) ms - Host latency: (?P<host>[\d.]+) ms "
    r"\((?:end to end [\d.]+ ms, )?enqueue (?P<enqueue>[\d.]+) ms\)"
)
_RATE: Final = re.compile(r"\s*Throughput: [\d.]+ qps")
_OLDEST: Final = re.compile(
    r"Average over \d+ runs is (?P<gpu>[\d.]+) ms \(host walltime is [\d.]+ ms", re.IGNORECASE
)
"""Of TensorRT 5 and 6, which have no summary."""
_SECTION: Final = re.compile(r"=== (?P<title>.+?) ===$")
_PROFILE: Final = re.compile(r"Profile \((?P<count>\d+) iterations ?\)")
_STATISTIC: Final = re.compile(r"(?P<name>[\w()%.]+) = (?P<value>[^\s,]+) ms")
_OLD_STATISTIC: Final = re.compile(
    r"(?P<name>min|max|mean|median|percentile): (?P<value>[\d.e+-]+) ms(?: at (?P<of>\d+)%)?"
)
_OLD_BLOCKS: Final[Mapping[str, str]] = {
    "Host Latency": "Latency",
    "Enqueue Time": "Enqueue Time",
    "GPU Compute": "GPU Compute Time",
}
"""Blocks of TensorRT 7 → what they are called since 8."""
_OLDER_NAMES: Final[Mapping[str, str]] = {"Host Latency": "Latency", "GPU Compute": "GPU Compute Time"}
_NUMBERS_FIRST: Final = re.compile(
    r"^\s*(?P<total>[\d.]+)\s+(?P<mean>[\d.]+)\s+(?:(?P<median>[\d.]+)\s+)?(?P<share>[\d.]+)\s+(?P<name>\S.*)$"
)
_NAME_FIRST: Final = re.compile(
    r"^\s*(?P<name>\S.*?)\s+(?P<total>[\d.]+)\s+(?P<mean>[\d.]+)\s+(?:(?P<median>[\d.]+)\s+)?(?P<share>[\d.]+)\s*%?$"
)
LARGEST: Final = 1e12
"""Ms, or inferences per second: thirty years."""
WHOLE: Final = 95.0
"""Percent: shares with one decimal that add up to less are not all that there were."""
SUMMARY: Final = "Performance summary"


@dataclass(frozen=True)
class LayerRow:
    """A layer in the table of --dumpProfile, times in ms; no median before TensorRT 8.4."""

    name: str
    total: float
    mean: float
    median: float | None
    share: float
    """Percent of all layers, of which a table that was copied in part lacks some."""


@dataclass
class TrtexecRun:
    """One run of trtexec. Times are ms, by its own names of today: `GPU Compute Time` → min, mean, median, …"""

    version: tuple[int, int, int] | None
    command: str
    passed: bool | None = None
    """None where the log ends before it says."""
    options: dict[str, dict[str, str]] = field(default_factory=dict)
    """Section (`Inference Options`) → name → value."""
    summary: dict[str, dict[str, float]] = field(default_factory=dict)
    throughput: float | None = None
    layers: list[LayerRow] = field(default_factory=list)
    all_layers: float = 0.0
    """Mean of all layers, ms, by the last row of their table; 0 where that is cut off."""
    iterations: int = 0
    """Of the table of layers."""
    averages: list[tuple[float, float, float]] = field(default_factory=list)
    """Of every few runs: GPU, latency, enqueue, ms. They stand for the summary where that was cut off."""
    warnings: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def option(self, *names: str) -> str | None:
        """The value of the first of these settings that is there, in any section."""
        for name in names:
            for section in self.options.values():
                if section.get(name):
                    return section[name]
        return None

    @property
    def layers_ms(self) -> float:
        """What all layers take, ms, also those that a table which was copied in part leaves out."""
        listed, percent = sum(layer.mean for layer in self.layers), sum(layer.share for layer in self.layers)
        return max(listed, self.all_layers or (100 * listed / percent if 0 < percent < WHOLE else listed))

    def of(self, quantity: str, *statistics: str) -> float | None:
        """The first of the statistics that a quantity of the summary has, in ms."""
        values = self.summary.get(quantity, {})
        return next((values[name] for name in statistics if name in values), None)


def version(number: int) -> tuple[int, int, int]:
    """The version in trtexec's banner: 101601 → (10, 16, 1); 8401 → (8, 4, 1), as it was written up to TensorRT 9."""
    step = 100 if number >= 10_000 else 10
    return number // (100 * step), number // 100 % step, number % 100


def runs(text: str) -> list[TrtexecRun]:
    """The runs of a log, in order. A log without its first line, as people cut it, is one run of unknown version."""
    made: list[TrtexecRun] = []
    section = ""
    for line in text.splitlines():
        line = line.strip("\r")
        if match := RUNNING.match(line):
            if match["how"] == "RUNNING":
                made.append(TrtexecRun(_version(match["version"]), match["command"] or ""))
            elif made:
                made[-1].passed = match["how"] == "PASSED"
            elif match["how"] in ("PASSED", "FAILED"):
                made.append(TrtexecRun(_version(match["version"]), match["command"] or "", match["how"] == "PASSED"))
            section = ""
        elif match := _PREFIX.match(line):
            if not made or (made[-1].throughput is not None and _RATE.match(match["text"])):
                made.append(TrtexecRun(None, ""))  # pieces of several runs
            section = _line(made[-1], section, match["level"], match["text"].strip())
        elif match := BARE.match(line):
            made = made or [TrtexecRun(None, "")]
            _summary(made[-1], line[match.end() :].strip())
        elif made and (match := _OLDEST.search(line)):
            made[-1].averages.append((_number(match["gpu"]), 0.0, 0.0))  # the host's is no latency
    for run in made:
        if run.averages and not run.summary:
            means = (sum(column) / len(run.averages) for column in zip(*run.averages, strict=True))
            run.summary = {
                name: {"mean": mean}
                for name, mean in zip(("GPU Compute Time", "Latency", "Enqueue Time"), means, strict=True)
                if mean
            }
    return made


def _version(number: str | None) -> tuple[int, int, int] | None:
    return version(int(number)) if number else None


def _line(run: TrtexecRun, section: str, level: str, text: str) -> str:
    """Take what a line of the log says into the run; the section that the next line is of."""
    if level in "WEF":
        (run.warnings if level == "W" else run.errors).append(text.removeprefix("[TRT] "))
    if level in "WEF" or text.startswith("[TRT]"):
        return section
    if text.startswith("TensorRT version: ") and run.version is None:
        run.version = _dotted(text.removeprefix("TensorRT version: "))
        return section
    if match := _AVERAGE.match(text):
        gpu, host, enqueue = (_number(match[name]) for name in ("gpu", "host", "enqueue"))
        run.averages.append((gpu, host, enqueue))
        return section
    if match := _SECTION.search(text):
        if count := _PROFILE.match(match["title"]):
            run.iterations = int(count["count"])
        return match["title"]
    if text in _OLD_BLOCKS:  # TensorRT 7
        return text
    if section in _OLD_BLOCKS:
        return _old_summary(run, section, text)
    if section == SUMMARY or BARE.match(text):
        _summary(run, text)
    elif _PROFILE.match(section):
        _layer(run, text)
    elif section.endswith(("Options", "Information")):
        return _setting(run, section, text)
    return section


def _setting(run: TrtexecRun, section: str, text: str) -> str:
    """A line of settings; one without a colon ends them."""
    name, colon, value = text.partition(":")
    if not colon:
        return ""
    name, settings = name.strip(), run.options.setdefault(section, {})
    several = name.startswith("Input inference shape") and settings.get(name)
    settings[name] = f"{several}, {value.strip()}" if several else value.strip()
    return section


def _dotted(text: str) -> tuple[int, int, int] | None:
    """`8003` of TensorRT 8.0, `10.16.1` since."""
    if text.isdecimal():
        return version(int(text))
    numbers = [int(part) for part in re.findall(r"\d+", text)[:3]]
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else None


def _number(text: str) -> float:
    """A time or a rate. Raises ValueError for what no clock shows."""
    value = float(text)
    if not 0 <= value < LARGEST:
        raise ValueError(f"{text} is no time and no rate")
    return value


def _summary(run: TrtexecRun, text: str) -> None:
    name, _, rest = text.partition(": ")
    if name == "Throughput":
        run.throughput = _number(rest.partition(" ")[0])
    elif statistics := {match["name"]: _number(match["value"]) for match in _STATISTIC.finditer(rest)}:
        run.summary[_OLDER_NAMES.get(name, name)] = statistics


def _old_summary(run: TrtexecRun, block: str, text: str) -> str:
    """A line of a block of TensorRT 7."""
    name, _, rest = text.partition(": ")
    if match := _OLD_STATISTIC.match(text):
        statistic = f"percentile({match['of']}%)" if match["of"] else match["name"]
        run.summary.setdefault(_OLD_BLOCKS[block], {})[statistic] = _number(match["value"])
    elif name == "throughput":
        run.throughput = _number(rest.partition(" ")[0])
    elif name not in ("walltime", "total compute time"):
        return ""
    return block


def _layer(run: TrtexecRun, text: str) -> None:
    """A row of the table of layers; its headings and its last row are none."""
    match = _NUMBERS_FIRST.match(text) or _NAME_FIRST.match(text)
    if match and match["name"] != "Total":
        median = float(match["median"]) if match["median"] else None
        total, mean, share = (float(match[name]) for name in ("total", "mean", "share"))
        run.layers.append(LayerRow(match["name"], total, mean, median, share))
    elif match:
        run.all_layers = float(match["mean"])


def joined(warnings: Sequence[str]) -> Iterator[str]:
    """Warnings with the lines that go on under them, once each."""
    whole: list[str] = []
    for warning in warnings:
        if warning.startswith("* ") or not whole or not whole[-1].startswith("* "):
            whole.append(warning)
        else:
            whole[-1] = f"{whole[-1]} {warning}"
    yield from dict.fromkeys(entry.removeprefix("* ") for entry in whole)
