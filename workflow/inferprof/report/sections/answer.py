"""The answer: three lines per model, then the fastest case at each shape, and what speaks against them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from inferprof import registry
from inferprof.case import EXCLUDED, REFERENCE
from inferprof.documents.graph import NAN_IN_FP32
from inferprof.grouping import grouped
from inferprof.report import answers, fidelity, winner
from inferprof.report.answers import Answer
from inferprof.report.common import enumerated, few, name_of, of_rounds, path_of
from inferprof.report.diagnosed import measured, sentences
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, Text, missing, number, words
from inferprof.report.numbers import percent, ratio, significant
from inferprof.report.section import section
from inferprof.report.winner import Winner
from inferprof.tables import summary
from inferprof.tables.nodes import precision_truth
from inferprof.tables.records import key_of, rows_of
from inferprof.words import counted

COLUMNS = (
    Column("model", "model"),
    Column("shape", "shape"),
    Column("boundary", "by"),
    Column("case", "fastest"),
    Column("median_ms", "median ms", "number"),
    Column("samples", "n", "number"),
    Column("items_per_s", "items/s", "number"),
    Column("speed_up", "speed-up", "number"),
    Column("interval", "±", "number"),
    Column("times_roof", "× roofline", "number", hidden=True),
    Column("accuracy", "accuracy"),
    Column("ties", "not distinguishable from", hidden=True),
)
ANSWERS = tuple(Column(name, name) for name in ("model", "shape", "by", "use", "why", "next"))
TITLE = "The fastest case at each shape that is accurate and settled, and its speed-up over the baseline"
VAGUE: Final = 0.1
"""Ours: a median whose interval is so much of it, to either side, is too vague to compare by."""
FORMATS_RAN: Final = "precision"
"""The check whose finding says what matrix products ran in."""
NO_ROOF = "the case has no device time, or its graph or this GPU no known roofline"
NO_GPU = (
    "Not answered here, without a GPU: when one is saturated, what {} add there, and what number formats gain. The "
    'same study answers that on a machine with a GPU; "What GPUs would need at least" has bounds.'
)


@section("answer", "Answer", place=10)
def build(evidence: Evidence) -> Sequence[Block]:
    """The answers, what speaks against them, and the table over all shapes."""
    blocks: list[Block] = []
    for answer in answers.of(evidence):
        blocks += _answer(evidence, answer)
    if said := of_rounds(evidence):
        blocks.append(Text(said, mark="warn"))
    blocks += [Text(doubt, mark="warn") for doubt in (*_doubted(evidence), *_vague(evidence))]
    winners = [best for model in evidence.models for best in evidence.once(winner.find, model)]
    blocks += _passed_over(evidence, winners)
    blocks += [Text(lucky, "item", "warn") for lucky in _lottery(evidence)]
    blocks += _accuracies(evidence)
    blocks += [Text(unused, "item", "warn") for unused in _unused(evidence)]
    blocks.append(Text(_counts(evidence)))
    blocks += _without_gpu(evidence)
    if winners:
        rows = tuple(_row(evidence, best) for best in winners)
        blocks.append(Table("fastest", TITLE, COLUMNS, rows, _faster_in_doubt(winners), groups=2))
    lines = [
        tuple(map(words, (answer.model, shape, evidence.boundary, *said)))
        for answer in answers.of(evidence)
        for shape, *said in answer.by_shape
    ]
    return (*blocks, Table("answers", "The answers", ANSWERS, tuple(lines), csv_only=True))


def _answer(evidence: Evidence, answer: Answer) -> Iterator[Block]:
    """Three lines; of what was never measured bare, what its profiles say."""
    yield answer.card
    if not evidence.measured["model"].eq(answer.model).any():
        name = f"{answer.model} " if len(evidence.models) > 1 else ""
        yield from (Text(f"{name}{sentence}", "item") for sentence in sentences(evidence, answer.model))


def _lottery(evidence: Evidence) -> Iterator[str]:
    """How far builds of the engine of a recommended case differ: a smaller lead is no property of the case."""
    best = [answer.best for answer in answers.of(evidence) if answer.best]
    for row in rows_of(evidence.rebuilds):
        place = tuple(row[key] for key in ("model", "shape", "precision", "backend"))
        if any(place == tuple(w.row[key] for key in ("model", "shape", "precision", "backend")) for w in best):
            spread = percent(100 * row["spread"])
            yield f"{'/'.join(place)}: {row['builds']} builds of one engine differ by {spread} (device): see Engines."


def _doubted(evidence: Evidence) -> Iterator[str]:
    """The cases that are measured, shown and recommended nowhere, the gate's reasons with them."""
    rows = rows_of(evidence.measured)
    column = f"{evidence.boundary}_doubt"
    doubted = [f"{path_of(row)}: {row[column]}" for row in rows if row[column]]
    if doubted:
        which = enumerated(doubted, len(rows), f"csv/{evidence.boundary}.csv")
        yield f"No headline is made of measurements in doubt, which tables mark *: {which}."


def _passed_over(evidence: Evidence, winners: list[Winner]) -> list[Block]:
    """Faster cases whose accuracy fails, each once with the shapes where it would have won."""
    shapes = grouped(
        ((row["model"], name_of(row), row["precision"]), best.shape) for best in winners if (row := best.rejected)
    )
    return [
        Text(
            f"Passed over: {model} {name} is faster at {few(where)}. Its accuracy is not acceptable: "
            f"{fidelity.of(evidence, model, precision).sentence}.",
            "item",
            "fail",
        )
        for (model, name, precision), where in shapes.items()
    ]


def _accuracies(evidence: Evidence) -> Iterator[Text]:
    """The accuracy of the formats that are recommended, each once; of a model without such a case that of all that
    were measured: noise does not touch it."""
    for answer in answers.of(evidence):
        best = answer.best
        measured = evidence.measured.loc[evidence.measured["model"].eq(answer.model), "precision"].unique()
        for precision in (best.row["precision"],) if best else measured:
            if precision != REFERENCE:
                said = fidelity.of(evidence, answer.model, precision).sentence
                yield Text(f"Accuracy of {answer.model} in {precision} against fp32: {said}.", "item")
            elif best and (nans := _nan_in_fp32(evidence, answer.model)):
                yield Text(f"Accuracy of {answer.model}: {nans}.", "item", "warn")


def _nan_in_fp32(evidence: Evidence, model: str) -> str:
    """`fp32 itself gives NaN in 118 of 256 values of output y`, as a comparison with it found; or nothing."""
    reasons = (fidelity.of(evidence, *pair).reason for pair in evidence.variants if pair[0] == model)
    return next((reason.split(":")[0] for reason in reasons if reason.startswith(NAN_IN_FP32)), "")


def _unused(evidence: Evidence) -> Iterator[str]:
    """The quantized formats that no matrix product was computed in, and what they were computed in."""
    formats = registry.precisions()
    quantized = {name for name, described in formats.items() if described.quantized}
    ran: dict[tuple[str, str], dict[str, str]] = {}
    for case, document in measured(evidence):
        name = case["precision"]
        for answer in (document.answers or ()) if name in quantized else ():
            for finding in answer.findings if answer.check == FORMATS_RAN else ():
                if not any(finding.evidence.get(f"{dtype}_share") for dtype in precision_truth.asked(name)):
                    ran.setdefault((case["model"], case["backend"]), {})[name] = finding.subject
    for (model, backend), by_format in ran.items():
        computed = few(f"{name} in {dtypes}" for name, dtypes in by_format.items())
        yield (
            f"{backend} computed every matrix product of {model} otherwise than asked: {computed}. There the "
            "quantizers cost time and save none."
        )


def _row(evidence: Evidence, best: Winner) -> tuple[Cell, ...]:
    n = int(best.row[f"{best.boundary}_n"])
    return (
        words(best.row["model"]),
        words(best.shape),
        words(best.boundary),
        words(best.name),
        number(best.median_ms, significant(best.median_ms)),
        number(n, f"{n:,}"),
        number(best.items_per_s, significant(best.items_per_s)),
        *winner.speed_up_cells(best, evidence.baseline),
        _roof(evidence, best),
        words(best.fidelity.outcome, best.fidelity.mark),
        words(", ".join(best.ties)),
    )


def _faster_in_doubt(winners: Sequence[Winner]) -> str:
    """The cases that were measured faster than those of the table and that no headline is made of."""
    doubted = [
        f"{best.row['model']} {best.shape}: {name_of(row)}, {significant(row[f'{best.boundary}_ms'])} ms"
        for best in winners
        if (row := best.doubted)
    ]
    return f"Measured faster, but in doubt: {'; '.join(doubted)}." if doubted else ""


def _roof(evidence: Evidence, best: Winner) -> Cell:
    """How many times the least time of its graph a case takes on the device."""
    by_key = {key_of(row): row for row in rows_of(evidence.roofline) if row["fused_ms"] is not None}
    row = by_key.get(key_of(best.row))
    if row is None:
        return missing(NO_ROOF)
    times = row["device_ms"] / row["fused_ms"]
    return number(times, ratio(times))


def _vague(evidence: Evidence) -> Iterator[str]:
    """How many cases have medians that are not known well enough to be compared."""
    vague = {key_of(row) for row in rows_of(evidence.latency) if _is_vague(row)}
    if vague:
        yield (
            f"{len(vague)} of {counted(len(evidence.measured), 'case')} have a median that is known to no better "
            f"than ±{percent(100 * VAGUE)}, or that has no interval: see ± under Latency. A longer `budget_s:` or "
            "more `rounds:` under `protocol:` narrow it."
        )


def _is_vague(row: Mapping[str, Any]) -> bool:
    if row["boundary"] == "call" or row["median"] is None:
        return False
    known_to = summary.half_width(row)
    return known_to is None or known_to >= VAGUE


def _without_gpu(evidence: Evidence) -> Iterator[Text]:
    """What a study that asked for a GPU's runtimes cannot answer on a machine without one."""
    backends, refused = registry.backends(), evidence.of("refused")["backend"].unique()
    wants_gpu = [backends[name] for name in refused if name in backends and backends[name].where == "cuda"]
    measured = list(evidence.records["record"])
    if wants_gpu and measured and not any(record.environment.gpu for record in measured):
        yield Text(NO_GPU.format(few([backend.name for backend in wants_gpu])), "item", "warn")


def _counts(evidence: Evidence) -> str:
    """`24 cases: 8 measured, 2 to come, 5 excluded by the config, 8 refused, 1 failed.`"""
    excluded = evidence.outcomes["reason"].astype(str).str.startswith(EXCLUDED)
    counts = evidence.outcomes["outcome"].mask(excluded, EXCLUDED).value_counts().to_dict()
    counts["to come"] = evidence.to_come()
    names = {"ok": "measured", "to come": "to come", EXCLUDED: EXCLUDED, "refused": "refused", "failed": "failed"}
    names["broken"] = "without a record"
    parts = [f"{counts[key]} {name}" for key, name in names.items() if counts.get(key)]
    return f"{counted(sum(counts.values()), 'case')}: {', '.join(parts) or 'none'}."
