"""How the numbers were made, in plain words, and the file behind each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from inferprof.case import REFERENCE
from inferprof.report.common import braced, few
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Column, Table, Text, number, words
from inferprof.report.numbers import percent
from inferprof.report.section import section
from inferprof.stats import PERCENTILES, samples_needed
from inferprof.tables import gate
from inferprof.tables.records import CASE_KEY, rows_of
from inferprof.words import counted

DIGITS: Final = 12
"""Of a SHA-256: enough to tell files apart; all of it is in results/onnx/MODEL/fp32.convert.json."""
NO_REVISION = "that is not known"
KIND_COLUMNS = (Column("pattern", "path under results/"), Column("count", "files", "number"))
FILE_COLUMNS = (Column("file", "file under results/", "path"),)


@section("method", "Method", place=360)
def method(evidence: Evidence) -> Sequence[Block]:
    """The rules that the tables above follow."""
    stopped = sorted({str(how) for how in evidence.latency["stopped_by"] if how})
    ended = f"; here it ended by {', '.join(stopped)}" if stopped else ""
    tail = samples_needed(PERCENTILES["p99"])
    sentences = (
        "Each case runs in a process of its own, never under a profiler. Warm-up ends when the latency has settled; "
        f"the loop ends when the interval of the median is narrow enough, or its budget is spent{ended}.",
        f"{_rounds(evidence)} Latency is the median over the samples of all rounds with its "
        "95 % interval by order statistics, widened by autocorrelation. Items/s of the latency tables is "
        "batch / median.",
        f"p99 is given from {tail} samples on: with fewer, the largest sample may lie below it.",
        f"The answer compares by {evidence.boundary}. Each other table names its boundary: GPU against GPU is "
        "compared by device, anything against a CPU by end_to_end. fp32 means TF32 off.",
        f"A median needs {gate.FEWEST} samples. A latency is in doubt where half of its rounds or more did not "
        f"settle or drifted by {percent(100 * gate.DRIFT)} or more, or its thread waited for a core for "
        f"{percent(100 * evidence.waited_limit)} of the time or more. It is shown with *, and makes no headline.",
        "“–” is never zero: the number beside it leads to the reason.",
    )
    return tuple(Text(sentence, "item") for sentence in sentences)


def _rounds(evidence: Evidence) -> str:
    if evidence.selected and evidence.rounds > 1:
        return (
            f"One round per case, and up to {evidence.rounds} where they could change which case is fastest or "
            "whether it is faster than the baseline."
        )
    return f"{counted(evidence.rounds, 'round')} per case."


@section("reproduce", "How to reproduce", place=370)
def reproduce(evidence: Evidence) -> Sequence[Block]:
    """The commands that measure all of it, or one case, again; on which code and machine it was measured."""
    config = f"results/reports/{evidence.study}/config.json"
    measured = evidence.records["record"]
    revisions = sorted({record.environment.git or NO_REVISION for record in measured})
    case = next((row for row in rows_of(evidence.outcomes) if row["files"]), None)
    sentences = [
        f"Code: git revision {few(revisions)}." if revisions else "Code: no case was measured.",
        *_own_files(evidence),
        f"Machine: {evidence.machine}; what it is and which packages it has: results/{evidence.environment.file}.",
        f"Config: {config}, as the study had it.",
        f"All of it: snakemake --cores 1 --configfile {config} -- results/REPORT.txt",
    ]
    if case:
        command = f"snakemake --cores 1 --configfile {config} --force -- results/{case['files'][0]}"
        sentences.append(f"One case once more: {command}")
    return tuple(Text(sentence, "item") for sentence in sentences)


def _own_files(evidence: Evidence) -> Iterator[str]:
    """What the models are made of, with the beginning of each file's SHA-256, of those that an export recorded."""
    own: dict[str, str] = {}
    for model in evidence.models:
        convert = evidence.documents.get((model, REFERENCE, "convert"))
        made_from = convert.content.made_from if convert and convert.content else {}
        own |= made_from
    if own:
        listed = few(f"{file} (SHA-256 {digest[:DIGITS]})" for file, digest in own.items())
        yield f"Models: {listed}. These files are neither among the results nor in a bundle of them."


@section("files", "The file behind each number", place=380)
def files(evidence: Evidence) -> Sequence[Block]:
    """Where the file behind a number lies, by kind; the files themselves are in the CSV."""
    by_kind = {kind: paths for kind, paths in _files(evidence).items() if paths}
    kinds = tuple((words(kind), number(len(paths), f"{len(paths):,}")) for kind, paths in by_kind.items())
    every = tuple((words(path),) for paths in by_kind.values() for path in paths)
    note = "Each CSV in csv/ is one of these tables in full precision, with the columns that do not fit on a page."
    return (
        Table("kinds_of_files", "", KIND_COLUMNS, kinds, note),
        Table("files", "Every one of them", FILE_COLUMNS, every, csv_only=True),
    )


def _files(evidence: Evidence) -> dict[str, list[str]]:
    """Kind, as a pattern of paths, to the files that were read."""
    machine, case = evidence.machine, "{model}/{precision}/{backend}/{variant}/{shape}"
    documents = evidence.documents.values()
    profiles = evidence.profiles[["tool", *CASE_KEY]].drop_duplicates().itertuples(index=False, name=None)
    return {
        f"{machine}/benchmark/{case}/r{{round}}.json": [
            braced(row["files"]) for row in rows_of(evidence.outcomes) if row["files"]
        ],
        f"{machine}/table/{{tool}}/{case}.parquet": [
            f"{machine}/table/{'/'.join(parts)}.parquet" for parts in profiles
        ],
        "onnx/{model}/{precision}.{convert,audit,accuracy}.json": [
            document.file for document in documents if document.content
        ],
        "onnx/{model}/{precision}.partition.json": [document.file for document in evidence.partitions.values()],
        f"{{machine}}/engine/{case}.build.json": [engine.build.file for engine in evidence.engines],
        f"{machine}/trtexec/{case}.json": [document.file for document in evidence.second_clocks],
        "onnx/{model}/{precision}.{shape}.cost.json": [cost.file for cost in evidence.costs.values() if cost.content],
        f"{machine}/{{environment,bandwidth,ceilings}}.json": [
            document.file
            for document in (evidence.environment, evidence.bandwidth, evidence.ceilings)
            if document.content
        ],
    }
