"""How far each number format is from fp32, and accuracy against speed, size and memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from inferprof.documents import Accuracy
from inferprof.documents.graph import Agreement
from inferprof.report import fidelity
from inferprof.report.common import CASE_COLUMNS, FEW, NO_FILE, by_case, case_cells, few, in_mib, onnx_bytes, optional
from inferprof.report.evidence import Evidence
from inferprof.report.fidelity import Fidelity
from inferprof.report.model import Block, Cell, Column, Mark, Table, Text, missing, number, without_number, words
from inferprof.report.numbers import half_width, significant, three_digits
from inferprof.report.section import section
from inferprof.tables.limits.pareto import BEHIND, BOUNDARY
from inferprof.tables.records import first_rounds, key_of, rows_of

NO_MEMORY = "it could not be read, or others gave back more meanwhile than the case took"
NO_NUMBER = "the outputs give no finite value"
COLUMNS = (
    Column("model", "model"),
    Column("precision", "precision"),
    Column("outcome", "outcome"),
    Column("sqnr_db", "SQNR dB", "number"),
    Column("cosine_min", "cosine, worst", "number"),
    Column("max_abs_error", "max abs error", "number"),
    Column("agreement", "decisions that agree"),
    Column("samples", "samples", "number", hidden=True),
    Column("tolerance_db", "pass/warn from dB", "number"),
    Column("from", "computed by", hidden=True),
    Column("reason", "reason", hidden=True),
    Column("pretrained", "pretrained", hidden=True),
    Column("file", "file", "path", hidden=True),
)
OF_RANDOM_INPUTS = (
    "numbers that no model was trained on, so that calibration and accuracy say little. Name your own with `data:` "
    "in models/NAME.yaml."
)


@section("accuracy", "Accuracy", place=280)
def accuracy(evidence: Evidence) -> Sequence[Block]:
    """The table, the reasons of what didn't pass, and what random weights mean for it."""
    fidelities = {pair: fidelity.of(evidence, *pair) for pair in evidence.variants}
    rows = tuple(tuple(_row(evidence, *pair, fidelities[pair])) for pair in fidelities)
    blocks: list[Block] = [
        Table(
            "accuracy",
            "The ONNX graph of each format against fp32, by the output that is farthest off",
            COLUMNS,
            rows,
            groups=1,
        )
    ]
    blocks += [
        Text(f"{model} {precision}: {result.outcome}: {result.reason}", "item", result.mark)
        for (model, precision), result in fidelities.items()
        if result.outcome in ("warn", "fail")
    ]
    if random := sorted({model for (model, _), result in fidelities.items() if result.pretrained is False}):
        blocks.append(
            Text(
                f"{', '.join(random)}: random weights (pretrained: false), so this is numerical fidelity only "
                "and says nothing about accuracy on a task."
            )
        )
    trained = {pair[0]: result.random_inputs for pair, result in fidelities.items() if result.pretrained is not False}
    if fed := {model: names for model, names in trained.items() if names}:
        inputs = "; ".join(f"{model}: {', '.join(names)}" for model, names in fed.items())
        blocks.append(Text(f"Random inputs. {inputs}: {OF_RANDOM_INPUTS}", mark="warn"))
    if evidence.quantized:
        blocks.append(Text(f"Not measured: {fidelity.quantized(few(sorted(evidence.quantized)))}."))
    blocks += _sources(evidence)
    return blocks


def _row(evidence: Evidence, model: str, precision: str, result: Fidelity) -> list[Cell]:
    document = evidence.documents[model, precision, "accuracy"]
    if result.outcome in ("reference", "not measured"):
        reference = result.outcome == "reference"
        outcome, rest = (words(result.outcome), without_number("")) if reference else [missing(result.reason)] * 2
        return [words(model), words(precision), outcome, *[rest] * (len(COLUMNS) - 4), words(document.file)]
    content: Accuracy | None = document.content
    assert content is not None and content.tolerance is not None  # there is an outcome
    return [
        words(model),
        words(precision),
        Cell(result.outcome, result.outcome, result.mark, file=document.file),
        without_number("identical") if result.identical else optional(result.sqnr_db, significant, NO_NUMBER),
        without_number("1") if result.identical else optional(result.cosine, fidelity.cosine_text, NO_NUMBER),
        optional(result.max_abs_error, lambda value: f"{value:.2e}" if value else "0", NO_NUMBER),
        _agreement(content.agreement),
        optional(content.samples, str),
        words(f"{content.tolerance.passes_db:g} / {content.tolerance.warns_db:g}"),
        words(content.source),
        words(result.reason),
        words(result.pretrained),
        words(document.file),
    ]


def _agreement(agreement: Agreement | None) -> Cell:
    """`top-1 98.4 %`, or the rank correlation of an embedding model's similarities."""
    if agreement is None:
        return missing("no decision is drawn from these outputs, or they collapsed")
    if agreement.kind == "top-1":
        return words(f"top-1 {agreement.share:.1%}")
    if agreement.spearman is None:
        return missing("the similarities have no ranking")
    return words(f"ranking ρ {agreement.spearman:.4f}, neighbours {agreement.shared_neighbours:.1%}")


def _sources(evidence: Evidence) -> list[Text]:
    """Which rows were not computed by ONNX Runtime from the graph itself."""
    by_source: dict[str, list[str]] = {}
    for model, precision in evidence.variants:
        content: Accuracy | None = evidence.documents[model, precision, "accuracy"].content
        if content and content.source:
            by_source.setdefault(content.source, []).append(f"{model} {precision}")
    return [Text(f"Computed by {source}: {few(names)}.") for source, names in by_source.items()]


PARETO_COLUMNS = (
    *CASE_COLUMNS,
    Column("end_to_end_ms", "end_to_end ms", "number"),
    Column("interval", "±", "number"),
    Column("sqnr_db", "SQNR dB", "number"),
    Column("accuracy", "accuracy", hidden=True),
    Column("onnx_mib", "ONNX MiB", "number"),
    Column("engine_mib", "engine MiB", "number", hidden=True),
    Column("memory_mib", "memory MiB", "number"),
    Column("standing", "standing"),
    Column("against", "against"),
)
PARETO_NOTE = (
    "front: no case of the model and shape is as accurate and as fast. undecided: it may be as fast as the case "
    "beside it, or slower, by the rule of all speed-ups. behind: that case is as accurate and faster. Memory: of the "
    "device, on a CPU of the process. csv/accuracy_speed.csv has those behind, and engines, too."
)


@section("pareto", "Accuracy against speed", place=283, needs=("measured",))
def pareto(evidence: Evidence) -> Sequence[Block]:
    """The cases on the front and those that are not distinguishable from it; in the CSV all."""
    table = evidence.once(fidelity.standings)
    if len(table.drop_duplicates(["model", "precision"])) <= table["model"].nunique():
        return ()
    rows = by_case(rows_of(table), evidence.order, lambda row: row["end_to_end_ms"])
    memory = _memory(first_rounds(evidence.resources))
    engines = {engine.key: engine.build.content.bytes for engine in evidence.engines if engine.build.content}
    cells = [(row, _standing(evidence, row, engines.get(key_of(row)), memory.get(key_of(row)))) for row in rows]
    near = tuple(line for row, line in cells if row["standing"] != BEHIND)
    every = tuple(line for _, line in cells)
    behind = len(every) - len(near)
    return (
        Table("accuracy_front", "", PARETO_COLUMNS, near, PARETO_NOTE, groups=2),
        *([Text(f"{behind} of {len(every)} cases are behind one of these.")] if behind else []),
        Table("accuracy_speed", "Accuracy against speed of all cases", PARETO_COLUMNS, every, csv_only=True),
    )


def _memory(resources: pd.DataFrame) -> dict[tuple[Any, ...], float | None]:
    """Bytes on the device of backends that any case of has some there, else on the host, by case."""
    on_gpu = set(resources.loc[resources["device_bytes"].notna(), "backend"])
    return {
        key_of(row): row["device_bytes" if row["backend"] in on_gpu else "host_rss_bytes"]
        for row in rows_of(resources)
    }


def _standing(evidence: Evidence, row: Mapping[str, Any], engine: int | None, used: float | None) -> tuple[Cell, ...]:
    low, high = (row[f"{BOUNDARY}_{end}_ms"] for end in ("low", "high"))
    return (
        *case_cells(row),
        optional(row[f"{BOUNDARY}_ms"], significant),
        words(half_width(row[f"{BOUNDARY}_ms"], low, high)) if not math.isnan(low) else missing(FEW),
        _sqnr(row),
        words(row["accuracy"]),
        in_mib(onnx_bytes(evidence, row["model"], row["precision"]), NO_FILE),
        in_mib(engine, "no engine is built for it"),
        in_mib(used, NO_MEMORY),
        words(row["standing"]),
        words(row["against"] or ""),
    )


def _sqnr(row: Mapping[str, Any]) -> Cell:
    """Marked where the accuracy warns or fails."""
    if row["identical"]:
        return without_number("identical")
    mark: Mark | None = row["accuracy"] if row["accuracy"] in ("warn", "fail") else None
    return number(row["sqnr_db"], three_digits(row["sqnr_db"]), mark)
