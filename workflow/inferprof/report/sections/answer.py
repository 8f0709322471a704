"""The answer: per model the fastest case, its speed-up over the baseline, and what it costs in accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from inferprof.case import EXCLUDED, REFERENCE
from inferprof.report import break_even, fidelity, saturated
from inferprof.report.common import FEW, ONE_ROUND, few, name_of
from inferprof.report.diagnosed import sentence_of, sentences, verdict_of
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, Text, missing, number, without_number, words
from inferprof.report.numbers import half_width, interval, percent, plural, ratio, significant, three_digits
from inferprof.report.section import Section
from inferprof.report.winner import Winner, find
from inferprof.tables import summary
from inferprof.tables.records import key_of, rows_of

COLUMNS = (
    Column("model", "model"),
    Column("shape", "shape"),
    Column("boundary", "by"),
    Column("case", "fastest"),
    Column("median_ms", "median ms", "number"),
    Column("speed_up", "speed-up", "number"),
    Column("interval", "±", "number"),
    Column("compared_by", "compared by", hidden=True),
    Column("times_roof", "× roof", "number"),
    Column("accuracy", "accuracy"),
    Column("ties", "not told apart from", hidden=True),
)


VAGUE: Final = 0.1
"""Ours: a median whose interval is so much of it, to either side, is too vague to compare by."""
NO_ROOF = "the case has no device time, or its graph or this GPU no known roof"


def build(evidence: Evidence) -> Sequence[Block]:
    """Sentences per model, then the table over all shapes."""
    blocks: list[Block] = []
    rows = []
    for model in evidence.models:
        winners = find(evidence, model)
        blocks += _sentences(evidence, model, winners)
        rows += [_row(evidence, winner) for winner in winners]
    if evidence.rounds == 1:
        blocks.append(Text(ONE_ROUND, mark="warn"))
    blocks += [Text(doubt, mark="warn") for doubt in _vague(evidence)]
    blocks.append(Text(_counts(evidence)))
    if rows:
        title = "The fastest case at each shape whose accuracy does not fail, and its speed-up over the baseline"
        blocks.append(Table("fastest", title, COLUMNS, tuple(rows), groups=2))
    return blocks


def _sentences(evidence: Evidence, model: str, winners: list[Winner]) -> list[Block]:
    """A headline about the smallest shape; then other boundaries, throughput, accuracy and what was passed over."""
    if not winners:
        nothing = Text(f"{model}: {_nothing(evidence, model)}.", "headline", "fail")
        return [nothing, *(Text(f"{model} {sentence}") for sentence in sentences(evidence, model))]
    first = winners[0]
    blocks: list[Block] = [Text(f"{model} at {_sentence(first, evidence.baseline)}", "headline")]
    other = next((w for w in winners if w.shape == first.shape and w.boundary != first.boundary), None)
    if other and other.name != first.name:
        blocks.append(Text(f"Among the GPU cases at {_sentence(other, evidence.baseline)}"))
    best = max((w for w in winners if w.boundary == first.boundary), key=lambda winner: winner.items_per_s)
    if best.shape != first.shape:
        most = f"Most items per second: {three_digits(best.items_per_s)}/s, at {_sentence(best, evidence.baseline)}"
        blocks.append(Text(most))
    blocks += [Text(line) for line in saturated.sentences(evidence, model)]
    blocks += [Text(line) for line in break_even.sentences(evidence, model, (first.shape, best.shape))]
    blocks += [Text(line) for line in _verdicts(evidence, (first, best))]
    blocks += [Text(f"{first.shape}: {lucky}", mark="warn") for lucky in _lottery(evidence, first)]
    judged = dict.fromkeys((w.row["precision"], w.fidelity) for w in (first, other, best) if w)
    blocks += [
        Text(f"Accuracy of {precision} against fp32: {result.sentence}.")
        for precision, result in judged
        if precision != REFERENCE
    ]
    return blocks + _passed_over(evidence, model, winners)


def _verdicts(evidence: Evidence, winners: Iterable[Winner]) -> Iterator[str]:
    """What holds the fastest cases back, each once."""
    for best in {key_of(winner.row): winner for winner in winners}.values():
        document = evidence.diagnoses.get(key_of(best.row))
        if document and document.content and verdict_of(document.content).groups:
            yield f"{best.shape}: {best.name}: {sentence_of(document.content)}"


def _lottery(evidence: Evidence, winner: Winner) -> list[str]:
    """That the fastest case is the luckiest build of an engine: its lead is then no property of the case."""
    key = (*(winner.row[part] for part in ("model", "shape", "precision", "backend")), winner.row["variant"])
    return [
        f"{winner.name} is the fastest of {row['builds']} builds of one engine, whose device medians spread by "
        f"{percent(100 * row['spread'])}: see Engines."
        for row in rows_of(evidence.rebuilds)
        if key == tuple(row[part] for part in ("model", "shape", "precision", "backend", "fastest"))
    ]


def _nothing(evidence: Evidence, model: str) -> str:
    """Why a model has no fastest case."""
    if (evidence.measured["model"] == model).any():
        return "every case that was measured fails its accuracy tolerance"
    return "no case was measured; the reasons are below"


def _sentence(winner: Winner, baseline: str | None) -> str:
    """`b1: fp16/ort_cuda/graph is fastest, 0.412 ms (device), 3.10× (3.02 to 3.18) as fast as … (device).`"""
    ties = f" It can't be told apart from {few(winner.ties)}." if winner.ties else ""
    fastest = f"{winner.shape}: {winner.name} is fastest, {winner.times}"
    return f"{fastest}{_gain(winner, baseline)}.{ties}"


def _gain(winner: Winner, baseline: str | None) -> str:
    """How the case stands to the baseline."""
    if baseline is None:
        return ""
    if winner.is_baseline:
        return "; it is the baseline"
    if winner.speed_up["speed_up"] is None:
        return f"; speed-up not measured: {winner.speed_up['not_measured']}"
    low, high = winner.speed_up["low"], winner.speed_up["high"]
    spread = f" ({interval(low, high)})" if low is not None else " (no interval: too few samples)"
    verdict = (
        f", verdict: {winner.speed_up['verdict']}" if winner.speed_up["verdict"] in ("same", "undecided") else ""
    )
    by = f" by {winner.speed_up['boundary']}"
    if winner.speed_up["flag"]:
        factor = f"{ratio(winner.speed_up['speed_up'])}{by}"
        return f"; its factor of {factor} is not to be taken for a speed-up: {winner.speed_up['flag']}"
    return f", {ratio(winner.speed_up['speed_up'])}{spread} as fast{by} as the baseline {baseline}{verdict}"


def _passed_over(evidence: Evidence, model: str, winners: list[Winner]) -> list[Block]:
    """Faster cases whose accuracy fails, each once with the shapes where it would have won."""
    shapes: dict[tuple[str, str], list[str]] = {}
    for winner in winners:
        if winner.rejected and winner.boundary == winners[0].boundary:
            shapes.setdefault((name_of(winner.rejected), winner.rejected["precision"]), []).append(winner.shape)
    return [
        Text(
            f"Passed over: {name} is faster still at {few(where)}, but its accuracy is not acceptable: "
            f"{fidelity.of(evidence, model, precision).sentence}.",
            mark="fail",
        )
        for (name, precision), where in shapes.items()
    ]


def _row(evidence: Evidence, winner: Winner) -> tuple[Cell, ...]:
    return (
        words(winner.row["model"]),
        words(winner.shape),
        words(winner.boundary),
        words(winner.name),
        number(winner.median_ms, significant(winner.median_ms)),
        *_speed_up_cells(winner, evidence.baseline),
        _roof(evidence, winner),
        words(winner.fidelity.outcome, winner.fidelity.mark),
        words(", ".join(winner.ties)),
    )


def _roof(evidence: Evidence, winner: Winner) -> Cell:
    """How many times the least time of its graph a case takes on the device."""
    by_key = {key_of(row): row for row in rows_of(evidence.roofline) if row["fused_ms"] is not None}
    row = by_key.get(key_of(winner.row))
    if row is None:
        return missing(NO_ROOF)
    times = row["device_ms"] / row["fused_ms"]
    return number(times, ratio(times))


def _speed_up_cells(winner: Winner, baseline: str | None) -> tuple[Cell, Cell, Cell]:
    if baseline is None or winner.is_baseline:
        word = without_number("baseline" if winner.is_baseline else "–")
        return word, without_number(""), words("")
    value, low, high = (winner.speed_up[key] for key in ("speed_up", "low", "high"))
    if value is None:
        return missing(winner.speed_up["not_measured"]), without_number(""), words("")
    if winner.speed_up["flag"]:
        return without_number("flagged"), without_number(""), words(winner.speed_up["boundary"])
    spread = missing(FEW) if low is None else words(half_width(value, low, high))
    return number(value, ratio(value)), spread, words(winner.speed_up["boundary"])


def _vague(evidence: Evidence) -> Iterator[str]:
    """How many cases have medians that are not known well enough to be compared."""
    vague = {key_of(row) for row in rows_of(evidence.latency) if _is_vague(row)}
    if vague:
        yield (
            f"Of {len(vague)} of {plural(len(evidence.measured), 'case')} a median is known to no better than "
            f"±{percent(100 * VAGUE)}, or has no interval (± under Latency); what to do: a longer `budget_s:` or "
            "more `rounds:` under `protocol:`, on a machine that nobody else uses."
        )


def _is_vague(row: Mapping[str, Any]) -> bool:
    if row["boundary"] == "call" or row["median"] is None:
        return False
    known_to = summary.half_width(row)
    return known_to is None or known_to >= VAGUE


def _counts(evidence: Evidence) -> str:
    """`24 cases: 8 measured, 5 excluded by the config, 10 refused, 1 failed.`"""
    excluded = evidence.outcomes["reason"].astype(str).str.startswith(EXCLUDED)
    counts = evidence.outcomes["outcome"].mask(excluded, EXCLUDED).value_counts()
    names = {"ok": "measured", EXCLUDED: EXCLUDED, "refused": "refused", "failed": "failed"}
    names["broken"] = "without a record"
    parts = [f"{counts[key]} {name}" for key, name in names.items() if key in counts]
    return f"{plural(len(evidence.outcomes), 'case')}: {', '.join(parts) or 'none'}."


SECTION = Section(
    name="answer",
    title="Answer",
    place=10,
    build=build,
)
