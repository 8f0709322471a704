"""What the counters say of each case's longest kernels, and NVIDIA's rules beside our own verdicts on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from inferprof import registry
from inferprof.report.common import CASE_COLUMNS, both_ends, case_cells, few, in_us, optional, path_of, short_kernel
from inferprof.report.evidence import Evidence
from inferprof.report.fields import CASE, Field, csv_of, plain, table_of, text
from inferprof.report.model import Block, Cell, Column, Table, Text, missing, number, words
from inferprof.report.numbers import ratio, significant
from inferprof.report.profiled import Profile, first_of, profiles
from inferprof.report.section import section
from inferprof.tables.counters import ncu_rules
from inferprof.tables.counters.ncu_choice import function_name
from inferprof.tables.counters.ncu_timeline import against_timeline
from inferprof.tables.records import key_of, rows_of
from inferprof.words import counted

TOP_KERNELS: Final = 3
PERCENTAGES: Final = {
    "sm_throughput": "SM %",
    "dram_throughput": "DRAM %",
    "l2_hit_rate": "L2 hit %",
    "pipe_tensor": "tensor %",
    "occupancy_achieved": "occ. %",
}
"""Metrics on the page and their titles."""
LEFT_OUT: Final = ("duration_total", "occupancy_limiter", "stall_top", "symbol", *PERCENTAGES)
"""Metrics that have a column of their own, or none."""
RANK_COLUMN: Final = Column("rank", "#", "number")
TIME_COLUMNS: Final = (
    *CASE_COLUMNS,
    RANK_COLUMN,
    Column("launch", "launch", "number", hidden=True),
    Column("kernel", "kernel"),
    Column("time_percent", "% of time", "number", hidden=True),
    Column("us", "µs", "number"),
    Column("timeline_us", "timeline µs", "number", hidden=True),
    Column("times_timeline", "× trace", "number"),
    *(Column(f"{metric}_percent", title, "number") for metric, title in PERCENTAGES.items()),
)
REASON_COLUMNS: Final = (
    *CASE_COLUMNS,
    RANK_COLUMN,
    Column("kernel", "kernel", hidden=True),
    Column("limiter", "warps limited by"),
    Column("stall", "waits for"),
    Column("stall_percent", "%", "number"),
    Column("rule", "NVIDIA's rule"),
    Column("rule_percent", "gain %", "number"),
    Column("message", "what it says", hidden=True),
)
LARGE_REPORT_MB: Final = 64.0
"""Above it the report says so: a folder of them is hard to carry."""
NOT_COUNTED: Final = "ncu did not count it on this GPU"
NO_STALL: Final = "no warp waited, or ncu did not count it"
NO_RULE: Final = "no rule of NVIDIA's expects a shorter run time"


@section("counters", "Counters", place=170, needs=("profiles",))
def counters(evidence: Evidence) -> Sequence[Block]:
    """Durations and loads, then limits, waits and advice; the refusals below. Empty where ncu is not in the study."""
    seen = profiles(evidence, registry.counters())
    if not seen:
        return ()
    timelines = {key_of(profile.case): profile.frame for profile in first_of(evidence, registry.tracers())}
    counted = [(profile, _launches(profile, timelines.get(key_of(profile.case)))) for profile in seen]
    remarks = [
        Text(f"{path_of(profile.case)}: {said}", "item")
        for profile in seen
        for said in (_refusal(profile), _lacking(profile), _large(profile))
        if said
    ]
    counted = [(profile, launches) for profile, launches in counted if launches]
    tables = _tables(counted) if counted else ()
    return (*tables, *remarks)


def _tables(counted: list[tuple[Profile, list[dict[str, Any]]]]) -> tuple[Block, ...]:
    times, reasons, every = [], [], []
    metrics = _metrics(counted)
    for profile, launches in counted:
        for rank, launch in enumerate(launches):
            row = _time(profile, rank + 1, launch)
            every.append((*row, *_others(launch, metrics)))
            if rank < TOP_KERNELS:
                times.append(row)
                reasons.append(_reason(profile, rank + 1, launch))
    title = f"The {TOP_KERNELS} counted kernels with the largest share of each case's kernel time"
    more = tuple(Column(metric, metric, "number") for metric in metrics)
    return (
        Table("counters", title, TIME_COLUMNS, tuple(times), _caution([watched for watched, _ in counted]), groups=5),
        Table(
            "counters_reasons",
            "What holds these kernels (#) up, and NVIDIA's rule with the largest gain",
            REASON_COLUMNS,
            tuple(reasons),
            REASON_NOTE,
            groups=5,
        ),
        Table("all_counters", "Every counted launch and metric", (*TIME_COLUMNS, *more), tuple(every), csv_only=True),
    )


REASON_NOTE: Final = (
    "Waits for: the largest share of the cycles between two instructions of a warp. Gain: of the kernel's time, as "
    "NVIDIA's rule estimates it; never measured here."
)


def _caution(seen: list[Profile]) -> str:
    """How the counters were taken."""
    settings = {metric: _words_of(seen, metric) for metric in ("clock_control", "cache_control")}
    shares = [float(value) for profile in seen for value in _run(profile.frame, "kernel_time_chosen")["value"]]
    chosen = f" The counted kernels have {min(shares):.0f} % or more of each case's kernel time." if shares else ""
    return (
        "ncu runs one launch of each kernel and grid alone, once for every few counters (--clock-control "
        f"{settings['clock_control']}, --cache-control {settings['cache_control']}), so that it takes longer than "
        "among the others (× trace: against the mean of the timeline's launches with that grid). Where these do "
        f"different amounts of work, one launch is not their mean.{chosen}"
    )


def _words_of(seen: list[Profile], metric: str) -> str:
    texts = dict.fromkeys(text for profile in seen for text in _run(profile.frame, metric)["text"])
    return "/".join(texts) or "unknown"


def _run(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    return frame[(frame["level"] == "run") & (frame["metric"] == metric)]


def _refusal(profile: Profile) -> str | None:
    """Why ncu could not watch a case."""
    reasons = _run(profile.frame, "not_measured")["text"]
    return str(reasons.iloc[0]) if len(reasons) else None


def _lacking(profile: Profile) -> str | None:
    """The chosen kernels that are not among the counted ones."""
    names = [short_kernel(str(name)) for name in _run(profile.frame, "not_counted")["text"]]
    return f"not counted, since ncu took another kernel of the same size instead: {few(names)}" if names else None


def _large(profile: Profile) -> str | None:
    """That the tool's own report is larger than others."""
    megabytes = [float(size) / 1e6 for size in _run(profile.frame, "report_bytes")["value"]]
    return f"its .ncu-rep has {max(megabytes):.0f} MB" if max(megabytes, default=0.0) > LARGE_REPORT_MB else None


def _launches(profile: Profile, timeline: pd.DataFrame | None) -> list[dict[str, Any]]:
    """The counted launches, those that take longest first, each with its rule of the largest gain."""
    frame = profile.frame
    table = against_timeline(frame, frame.head(0) if timeline is None else timeline)
    rules = _top_rules(frame)
    return [{**row, **rules.get(row["launch"], {})} for row in rows_of(table)]


def _top_rules(frame: pd.DataFrame) -> dict[int, dict[str, Any]]:
    """Launch → `rule`, `rule_gain` (percent of the kernel's time) and `rule_message`."""
    rules = frame[frame["level"] == "ncu_rule"]
    gains = rules[rules["metric"] == "rule_speed_up_kernel"].sort_values("value", ascending=False, kind="stable")
    best = gains.drop_duplicates("launch")
    said = rules[rules["metric"] == "rule_message"].set_index(["launch", "name"])["text"]
    return {
        row["launch"]: {
            "rule": row["name"],
            "rule_gain": float(row["value"]),
            "rule_message": said.get((row["launch"], row["name"])),
        }
        for row in rows_of(best)
    }


def _metrics(counted: list[tuple[Profile, list[dict[str, Any]]]]) -> list[str]:
    """Every other number that any launch has."""
    every = [launch for _, launches in counted for launch in launches]
    numbers = (name for launch in every for name, value in launch.items() if isinstance(value, float))
    elsewhere = ("timeline_", "rule_", "time_")
    return [name for name in dict.fromkeys(numbers) if name not in LEFT_OUT and not name.startswith(elsewhere)]


def _time(profile: Profile, rank: int, launch: Mapping[str, Any]) -> tuple[Cell, ...]:
    duration, mean = launch.get("duration_total"), launch["timeline_mean"]
    why = launch["no_timeline"] or NOT_COUNTED
    return (
        *case_cells(profile.case),
        number(rank, str(rank)),
        number(launch["launch"], str(launch["launch"])),
        _kernel(launch),
        optional(launch["time_share"] and 100 * launch["time_share"], lambda value: f"{value:.1f}", why),
        in_us(duration, NOT_COUNTED),
        in_us(mean, why),
        optional(duration and mean and duration / mean, ratio, why),
        *(optional(launch.get(metric), lambda value: f"{value:.0f}", NOT_COUNTED) for metric in PERCENTAGES),
    )


def _others(launch: Mapping[str, Any], metrics: list[str]) -> tuple[Cell, ...]:
    return tuple(optional(launch.get(metric), significant, NOT_COUNTED) for metric in metrics)


def _reason(profile: Profile, rank: int, launch: Mapping[str, Any]) -> tuple[Cell, ...]:
    stall = launch.get("stall_top")
    rule = launch.get("rule")
    return (
        *case_cells(profile.case),
        number(rank, str(rank)),
        _kernel(launch),
        _words(launch.get("occupancy_limiter"), NOT_COUNTED),
        _words(stall and str(stall).replace("_", " "), NO_STALL),
        optional(stall and launch.get(f"stall_{stall}"), lambda value: f"{value:.0f}", NO_STALL),
        _words(rule, NO_RULE),
        optional(launch.get("rule_gain"), lambda value: f"{value:.0f}", NO_RULE),
        _words(launch.get("rule_message"), NO_RULE),
    )


def _kernel(launch: Mapping[str, Any]) -> Cell:
    return Cell(short_kernel(launch["name"]), launch["name"])


def _words(text: Any, reason: str) -> Cell:
    """NaN is how a frame says "missing"."""
    return words(text) if isinstance(text, str) else missing(reason)


APART: Final = ("theirs alone", "ours alone")
RULES_LIMIT: Final = 20
SILENT: Final = "no rule of NVIDIA's spoke of it"
RULES_FIELDS: Final = (
    *CASE,
    text("tool", hidden=True),
    plain("launch", hidden=True),
    Field(Column("kernel", "kernel"), lambda row: Cell(both_ends(function_name(row["name"])).text, row["name"])),
    text("agreement", "seen by"),
    text("rule", None, SILENT),
    Field(Column("rule_percent", "gain %", "number"), lambda row: _gain(row)),
    Field(Column("faults", "our checks", hidden=True), lambda row: words(row["faults"] or "none")),
    Field(
        Column("ours", "what ours say", hidden=True),
        lambda row: words(row["ours"] or "no check of ours looks at it"),
    ),
    text("message", "what it says", SILENT, hidden=True),
)
RULES_NOTE: Final = (
    f"Gain: of the kernel's time, as NVIDIA's rule estimates it; from {ncu_rules.RULE_PERCENT:.0f} % on. Theirs "
    "alone: each of our checks that looks at the same is clear. Ours alone: no rule that looks at the same spoke. "
    "Ours rest on NVIDIA's thresholds where a rule has one."
)


@section("rules", "NVIDIA's rules and ours", place=180, needs=("profiles",))
def rules(evidence: Evidence) -> Sequence[Block]:
    """The disagreements, and every rule that expects a gain in a CSV; empty where ncu has told of no rules."""
    results = [
        {**profile.case, "tool": profile.tool, **row}
        for profile in profiles(evidence, registry.counters())
        for row in rows_of(ncu_rules.agreement(profile.frame))
    ]
    if not results:
        return ()
    counts = Counter(row["agreement"] for row in results)
    tally = ", ".join(f"{count} {agreement}" for agreement, count in counts.most_common())
    apart = [row for row in results if row["agreement"] in APART]
    shown = table_of("ncu_rules", "Where they disagree", RULES_FIELDS, apart, RULES_NOTE, groups=5)
    tables = [replace(shown, limit=RULES_LIMIT)] if apart else []
    every = csv_of("all_ncu_rules", "Every rule that expects a gain", RULES_FIELDS, results)
    return (Text(f"{counted(len(results), 'result')}: {tally}."), *tables, every)


def _gain(row: Mapping[str, Any]) -> Cell:
    return number(row["rule_percent"], f"{row['rule_percent']:.0f}") if row["rule"] else missing(SILENT)
