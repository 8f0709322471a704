"""An answer in twenty lines: what ran on what, where the time goes, the cause, what to do, what no file tells."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from inferprof import registry
from inferprof.diagnosis.device import GAPS
from inferprof.diagnosis.kernel_time import distinct, untraced_graphs
from inferprof.diagnosis.times import iteration, on_several_gpus, percent, traced_by_node
from inferprof.diagnosis.verdict import gain_in_words
from inferprof.explain.foreign import UNLIKE, Foreign, busiest
from inferprof.explain.parts import parts_of
from inferprof.findings import Finding
from inferprof.tables.trace import collectives, derived, kernel_compare
from inferprof.tables.trace.api_kind import UNTIED
from inferprof.tables.trace.idle import STARTING
from inferprof.tables.trace.kernel_compare import ITERATION
from inferprof.words import counted, ms

MOST_LINES: Final = 20
WIDTH: Final = 100
LABEL: Final = 11
SHOWN: Final = 3
MOSTLY: Final = 0.5
ALSO: Final = 2
"""Further findings in the answer."""
LONGEST: Final = 400
"""Characters of one entry."""
LEAST: Final = 0.005
"""Ours: parts below half a percent are in the rest."""


@dataclass(frozen=True)
class Entry:
    """A labelled line of an answer. Of too many those of the highest number are left out first."""

    label: str
    text: str
    rank: int = 0


def entries(foreign: Foreign) -> list[Entry]:
    """The whole answer, in order."""
    made = [Entry("ran", _ran(foreign)), *(Entry("watched", line) for line in foreign.watched)]
    if foreign.failure:
        made += [Entry("failed", foreign.failure), *_notes(foreign)]
    else:
        made += [*_iterations(foreign), *_where(foreign), *_kernels(foreign), *_cause(foreign)]
        made += [*_devices(foreign), *_formats(foreign), *_notes(foreign)]
    for number, lack in enumerate(foreign.lacks):
        made.append(Entry("not told", f"{lack.what}. What tells: {lack.command}", 0 if number == 0 else 6))
    return made


def render(foreign: Foreign, width: int = WIDTH) -> str:
    """The answer as text of at most MOST_LINES lines, behind the names of the files."""
    return render_entries(", ".join(foreign.names), entries(foreign), width)


def render_entries(title: str, every: Sequence[Entry], width: int = WIDTH) -> str:
    """Entries below a title, in at most MOST_LINES lines."""
    kept: set[int] = set()
    for place in sorted(range(len(every)), key=lambda place: (every[place].rank, place)):
        wanted = [every[other] for other in sorted({*kept, place})]
        if not every[place].rank or len(_lines(title, wanted, width)) <= MOST_LINES:
            kept.add(place)
    return "\n".join(_lines(title, [every[place] for place in sorted(kept)], width))


def _lines(title: str, kept: Sequence[Entry], width: int) -> list[str]:
    lines = [textwrap.shorten(title, width, placeholder=" …")]
    label = ""
    for entry in kept:
        text = entry.text if len(entry.text) <= LONGEST else f"{entry.text[: LONGEST - 1]}…"
        first = "" if entry.label == label else entry.label
        label = entry.label
        lines += textwrap.wrap(
            text,
            width,
            initial_indent=f"  {first:<{LABEL}}",
            subsequent_indent=" " * (LABEL + 2),
            break_on_hyphens=False,
        )
    return lines


def _ran(foreign: Foreign) -> str:
    pieces = dict.fromkeys(piece for capture in foreign.captures for piece in capture.ran)
    counts = []
    for capture in foreign.captures:
        if capture.timeline is not None:
            ops = capture.timeline.ops
            processes = ops["process"].nunique() if "process" in ops else 1
            counts.append(counted(len(ops), "operation"))
            counts += [
                counted(n, what) for n, what in ((ops["device"].nunique(), "GPU"), (processes, "process")) if n > 1
            ]
    return " · ".join([*pieces, *counts])


def _iterations(foreign: Foreign) -> Iterator[Entry]:
    choice = foreign.choice
    yield from (Entry("iteration", line) for capture in foreign.captures for line in capture.steps)
    if choice is None:
        return
    if choice.by is None:
        chooses = "" if choice.reason == UNTIED else " (--iteration RANGE chooses)"
        yield Entry("iteration", f"none: {choice.reason}; the capture counts as a whole{chooses}", 1)
    else:
        of_gpus = _of_gpus(foreign)
        yield Entry(
            "iteration", f"{choice.count} × {ms(choice.mean_ns or 0.0)}{of_gpus or choice.spread}: {choice.reason}"
        )
    others = [c for c in choice.candidates if c.name != choice.by][:SHOWN]
    phases = [p for p in choice.periods if choice.by == "period" and p.share >= waterfall_share()][:SHOWN]
    if others:
        listed = "; ".join(f"{c.name} {c.count} × {ms(c.mean_ns)}, {100 * c.share:.0f} %" for c in others)
        yield Entry("", f"other ranges (how often, how long, of the GPU's time): {listed}", 5)
    if len(phases) > 1:
        listed = "; ".join(f"{p.count} × {ms(float(p.took.mean()))}, {100 * p.share:.0f} %" for p in phases)
        yield Entry("", f"phases that repeat, in order: {listed}", 5)


def _of_gpus(foreign: Foreign) -> str:
    """How long an iteration takes on each GPU, where processes of their own have iterations of their own."""
    rows = foreign.rows[foreign.rows["name"].eq(ITERATION) & foreign.rows["device"].notna()]
    lengths = rows[rows["metric"].isin(("gpu_busy", "gpu_idle"))].groupby("device")["value"].sum()
    if lengths.map(ms).nunique() < 2:
        return ""
    return f" ({', '.join(f'GPU {gpu} {ms(ns)}' for gpu, ns in lengths.items())})"


def waterfall_share() -> float:
    """Ours: from which share of the GPU's time on a phase is worth a word."""
    return 0.1


# --- where the time goes ---------------------------------------------------------------------------------------


def _where(foreign: Foreign) -> Iterator[Entry]:
    if (whole_and_parts := parts_of(foreign)) is None or not whole_and_parts[1]:
        return
    of, whole, parts = whole_and_parts
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    shown = [f"{percent(ns / whole)} {name}" for name, ns in ordered if ns / whole >= LEAST]
    several = foreign.frames.tool and on_several_gpus(foreign.frames)
    gpu = f", GPU {busiest(foreign.frames)}" if several else ""
    yield Entry("where", f"of {of} ({ms(whole)}{gpu}): {', '.join(shown)}")


def _kernels(foreign: Foreign) -> Iterator[Entry]:
    """Classes of kernels, and the longest ones; of an iteration where there are any."""
    rows = foreign.rows[foreign.rows["tool"].isin((*registry.tracers(), *registry.counters()))]
    rows = rows[~rows["level"].eq("launch_config")]
    if not (rows["level"].eq("kernel") & rows["metric"].eq("duration_total")).any():
        return
    tool = rows.loc[rows["level"].eq("kernel"), "tool"].iloc[0]
    table = kernel_compare.per_iteration(rows[rows["tool"].eq(tool)])
    whole = float(table["duration"].sum())
    if not whole:
        return
    classes = table.groupby("kernel_class")["duration"].sum().sort_values(ascending=False, kind="stable") / whole
    listed = ", ".join(f"{name} {percent(share)}" for name, share in classes.head(SHOWN + 1).items())
    top = table.sort_values("duration", ascending=False, kind="stable").head(SHOWN)
    names = "; ".join(
        f"{name} {percent(float(duration) / whole)}"
        for name, duration in zip(distinct(list(top["name"])), top["duration"], strict=True)
    )
    unit = "an iteration" if foreign.choice is not None and foreign.choice.by else "in all"
    if foreign.frames.tool and collectives.iterations_of(rows) < kernel_compare.iterations(rows):
        unit = f"{unit} (mean of {counted(rows['device'].nunique(), 'GPU')})"
    launches = float(table["launches"].sum())
    graphs = kernel_compare.of_iterations(rows[rows["metric"].eq("duration_total")], "graph")
    count = kernel_compare.iterations(rows) or 1
    unseen = f"; beside CUDA graphs of {ms(graphs['value'].sum() / count)}, traced as a whole" if len(graphs) else ""
    if untraced := untraced_graphs(rows[rows["tool"].eq(tool)]):
        unseen = f"; beside {counted(untraced.launches, 'launch')} of CUDA graphs, whose kernels are not in this file"
    said = f"{counted(launches, 'launch')}, {ms(whole, 4)} {unit}: {listed}; longest {names}{unseen}"
    yield Entry("kernels", said, 1)


# --- why, and what to do ---------------------------------------------------------------------------------------


def _cause(foreign: Foreign) -> Iterator[Entry]:
    groups = foreign.verdict.groups
    idle = _mostly_idle(foreign)
    if idle or not groups:
        yield from idle or _largest_part(foreign)
    if not groups:
        return
    first = groups[0].findings[0].finding
    if not idle:
        yield Entry("cause", _reason(first))
        gain = [] if first.gain is None else [gain_in_words(first.gain, foreign.total)]
        if foreign.choice is not None and foreign.choice.apart >= UNLIKE:
            gain = ["What it saves is not told: iterations differ too far."]
        yield Entry("do", _sentences(_advice(first), *gain))
    rest = (
        [first] * bool(idle)
        + [group.findings[0].finding for group in groups[1:]]
        + [entry.finding for entry in groups[0].findings[1:]]
    )
    for number, finding in enumerate(rest[:ALSO]):
        rank = 1 if number == 0 and finding.acts else 3 + number  # what to do is more than what a file says of itself
        yield Entry("also", _sentences(_reason(finding), _advice(finding)), rank)
    yield from _late_graph(foreign)
    for caution in foreign.verdict.cautions[:ALSO]:
        yield Entry("doubt", _sentences(_reason(caution.finding), _advice(caution.finding)), 3)


def _late_graph(foreign: Foreign) -> Iterator[Entry]:
    """That the GPU is idle behind launches, where no check believes it: the nodes of a CUDA graph were traced."""
    seen = iteration(foreign.frames) if foreign.frames.tool else {}
    idle = seen.get("idle_queued", 0.0) + seen.get(STARTING, 0.0)
    share = foreign.frames.share(idle) or 0.0
    if share >= foreign.frames.limit(GAPS) and traced_by_node(foreign.frames):
        text = (
            f"the GPU is idle for {ms(idle)} ({percent(share)}) after the launch. Tracing the nodes of a CUDA graph "
            "makes this longer: trace it as a whole, or time it without a profiler."
        )
        yield Entry("doubt", text, 2)


def _mostly_idle(foreign: Foreign) -> list[Entry]:
    """Of a capture without iterations in which the GPU mostly waits: that, before any kernel of it."""
    if foreign.choice is None or foreign.choice.by or (whole_and_parts := parts_of(foreign)) is None:
        return []
    _, whole, parts = whole_and_parts
    name, ns = max(parts.items(), key=lambda part: part[1])
    if name in ("kernels", "copies") or ns < MOSTLY * whole:
        return []
    do = "capture inferences alone, several of them, with a range around each; or name one: --iteration"
    return [
        Entry("cause", f"for {percent(ns / whole)} of the capture the GPU computes nothing: {name}"),
        Entry("do", "trace the calls that launch its work, too" if foreign.choice.reason == UNTIED else do),
    ]


def _largest_part(foreign: Foreign) -> Iterator[Entry]:
    """Where no check found anything: the largest part, or that such a file tells no cause."""
    whole_and_parts = parts_of(foreign)
    if whole_and_parts is None or not whole_and_parts[1]:
        yield Entry("cause", "such a file tells none: it has no time of an inference and its parts")
        return
    name, ns = max(whole_and_parts[2].items(), key=lambda part: part[1])
    yield Entry(
        "cause",
        f"no check finds a fault; {percent(ns / whole_and_parts[1])} is {name}, which is what there is to work on",
    )
    if name == "kernels":
        yield Entry("do", "see which classes take it (kernels); then what bounds the longest ones: ncu")


def _reason(finding: Finding) -> str:
    """The reason, behind what it is about where it does not begin so itself."""
    begins = finding.reason.startswith((finding.subject, finding.subject.rpartition(" ")[2]))
    return finding.reason if begins else f"{finding.subject}: {finding.reason}"


def _sentences(*parts: str) -> str:
    """Sentences stand behind each other; of what is none, a semicolon is between."""
    text = ""
    for part in parts:
        between = " " if text.endswith(".") else ". " if part[:1].isupper() else "; "
        text += f"{between if text else ''}{part}"
    return text


def _advice(finding: Finding) -> str:
    """Without the words that only a study has."""
    return finding.advice.replace(": a variant with `cuda_graph: true`", " (in a study: `cuda_graph: true`)")


def _devices(foreign: Foreign) -> Iterator[Entry]:
    """What each of several GPUs does meanwhile."""
    rows = foreign.rows
    name = ITERATION if foreign.choice is not None and foreign.choice.by else derived.WHOLE_CAPTURE
    metrics = ("gpu_busy", "gpu_idle", "idle_launch", STARTING)
    own = rows[rows["name"].eq(name) & rows["metric"].isin(metrics) & rows["device"].notna()]
    if own["device"].nunique() < 2:
        return
    wide = own.pivot_table(index="device", columns="metric", values="value", aggfunc="mean")
    whole = wide["gpu_busy"] + wide["gpu_idle"]
    busy, waiting = wide["gpu_busy"] / whole, (wide["idle_launch"] - wide[STARTING]) / whole
    listed = "; ".join(f"GPU {gpu} {percent(busy[gpu])}, {percent(waiting[gpu])}" for gpu in wide.index)
    yield Entry("GPUs", f"busy, waiting for launches: {listed}", 2)


def _formats(foreign: Foreign) -> Iterator[Entry]:
    """In which formats the matrix products computed, by time."""
    from inferprof.errors import UserError
    from inferprof.tables.nodes import kernel_formats, precision_truth

    for capture in foreign.captures:
        rows = foreign.rows[foreign.rows["tool"].eq(capture.tool)]
        if capture.tool in registry.counters() or not kernel_formats.tells(rows):
            continue
        try:
            table = precision_truth.by_dtype(kernel_formats.of_case(rows))
        except UserError:
            continue
        products = table[table["matrix"] & table["share"].ge(LEAST)]
        if products["dtype"].ne(kernel_formats.NOT_TOLD).any():
            listed = ", ".join(
                f"{d} {percent(float(s))}" for d, s in zip(products["dtype"], products["share"], strict=True)
            )
            yield Entry("formats", f"of the matrix products' time: {listed}", 3)


def _notes(foreign: Foreign) -> Iterator[Entry]:
    yield from (Entry("graph", line, 2) for line in foreign.graph)
    for number, note in enumerate(dict.fromkeys(note for capture in foreign.captures for note in capture.notes)):
        yield Entry("it says", note, 2 if number < SHOWN else 5)
