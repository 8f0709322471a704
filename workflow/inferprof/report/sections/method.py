"""How the numbers were made, in plain words, and the file behind each of them."""

from __future__ import annotations

from inferprof.report.evidence import Evidence
from inferprof.report.model import Column, Section, Table, Text, words
from inferprof.report.numbers import plural
from inferprof.report.sections.common import braced
from inferprof.stats import PERCENTILES, samples_needed
from inferprof.tables.records import rows_of

FILE_COLUMNS = (Column("file", "file under results/", "path"),)


def method(evidence: Evidence) -> Section:
    """The rules that the tables above follow."""
    stopped = sorted({str(how) for how in evidence.latency["stopped_by"] if how})
    ended = f"; here it ended by {', '.join(stopped)}" if stopped else ""
    tail = samples_needed(PERCENTILES["p99"])
    sentences = (
        "Each case runs in a process of its own, never under a profiler. Warm-up ends when the latency has settled; "
        f"the loop ends when the interval of the median is narrow enough, or its budget is spent{ended}.",
        f"{plural(evidence.rounds, 'round')} per case. Latency is the median over the samples of all rounds with its "
        "95 % interval by order statistics, widened by autocorrelation. Items/s of the latency tables is "
        "batch / median.",
        f"p99 is given from {tail} samples on: with fewer, the largest sample may lie below it.",
        "GPU against GPU is compared by device; anything against a CPU by end_to_end. fp32 means TF32 off.",
        "“–” is never zero: the number beside it leads to the reason.",
    )
    return Section("Method", tuple(Text(sentence, "item") for sentence in sentences))


def files(evidence: Evidence) -> Section:
    """Every file that a number of this report comes from."""
    paths = [braced(row["files"]) for row in rows_of(evidence.outcomes) if row["files"]]
    paths += [document.file for document in evidence.documents.values() if document.content is not None]
    paths += [engine.build.file for engine in evidence.engines]
    if evidence.environment.content is not None:
        paths.append(evidence.environment.file)
    cells = tuple((words(path),) for path in paths)
    note = "Each CSV in csv/ is one of these tables in full precision, with the columns that do not fit on a page."
    return Section("The file behind each number", (Table("files", "", FILE_COLUMNS, cells, note),))
