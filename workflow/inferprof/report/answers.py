"""The answer about each model in three lines: what to use, why it takes as long as it does, what to do next.

All numbers of an answer are by one boundary, and the three lines about one shape: those that the config asks for
under `answer:`, else end_to_end and the largest shape that most cases have. A line of each other shape says what to
use there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from inferprof import stats
from inferprof.case import EXCLUDED, Shape
from inferprof.diagnosis.verdict import capital
from inferprof.documents import Diagnosis, Trail
from inferprof.documents.diagnosed import Finding, Gain, Total, Verdict
from inferprof.report import saturated, searched, winner
from inferprof.report.common import ABOUT_ITSELF, few, name_of
from inferprof.report.evidence import Evidence
from inferprof.report.model import Card
from inferprof.report.numbers import interval, percent, ratio, three_digits
from inferprof.report.winner import Winner
from inferprof.tables import summary
from inferprof.tables.records import key_of
from inferprof.units import NS_PER_MS
from inferprof.words import counted

WORTH: Final = 0.01
"""Ours, share of the time: what gains less is nothing to do next."""
IN_DEVICE: Final = frozenset({"launch", "idle", "kernels", "execution"})
"""Resources whose time `device` contains."""
CAUSES: Final[Mapping[str, str]] = {
    "launch": "the GPU waits for the host's launches",
    "idle": "the GPU waits for something else",
    "copy": "copies in and out",
    "kernels": "kernels on the GPU",
    "execution": "execution of the model",
}
"""Resource → what takes the time."""
FAR_APART: Final = f"but each of its samples is {stats.FAR:.0f} times each of this case, or more"
NO_ACTION: Final = "no check names a change that helps"
MEASURE_AGAIN: Final = "measure again on a machine that nobody else uses, with a longer `budget_s:` under `protocol:`"
OTHERS: Final = 6
"""Ours: so many other shapes have a line on the card."""
NOT_DIAGNOSED: Final = "not known, the case was not diagnosed"


@dataclass(frozen=True)
class Answer:
    """What a model's reader is told first. `best` is None where no case of the study can be recommended; a search may
    have confirmed one all the same."""

    model: str
    shape: str
    title: str
    use: str
    why: str
    do_next: str
    best: Winner | None
    search: Trail | None = None
    """The search for this model and shape, if it confirmed a case."""
    others: tuple[tuple[str, str], ...] = ()
    """The other shapes that were measured, and what to use there."""

    @property
    def by_shape(self) -> Iterator[tuple[str, str, str, str]]:
        """Of each shape: its name, what to use, and for one why it takes as long and what to do next."""
        yield self.shape, self.use, self.why, self.do_next
        for shape, use in self.others:
            yield shape, use, "", ""

    @property
    def card(self) -> Card:
        """The three lines, and one of each other shape."""
        lines = [("Use", f"{self.use}."), ("Why", f"{capital(self.why)}."), ("Next", f"{capital(self.do_next)}.")]
        also = [f"{shape}: {words}." for shape, words in self.others[:OTHERS]]
        if len(self.others) > OTHERS:
            also.append(f"{len(self.others) - OTHERS:,} more: csv/answers.csv")
        lines += [("" if index else "Also", words) for index, words in enumerate(also)]
        return Card(self.title, tuple(lines), None if self.best or self.search else "fail")


def of(evidence: Evidence) -> list[Answer]:
    """The answers in the order of the models, those first that recommend a case."""
    return evidence.once(_answers)


def _answers(evidence: Evidence) -> list[Answer]:
    coming = [] if evidence.waiting is None else list(evidence.waiting["model"])
    answers = [_answer(evidence, model) for model in dict.fromkeys([*evidence.models, *coming])]
    return sorted(answers, key=lambda answer: answer.best is None and answer.search is None)


def _answer(evidence: Evidence, model: str) -> Answer:
    winners = {best.shape: best for best in evidence.once(winner.find, model)}
    shape = _shape(evidence, model, list(winners))
    best = winners.get(shape)
    against = f", against {evidence.baseline}" if evidence.baseline else ""
    title = f"{model} at {shape}, by {evidence.boundary}{against}" if shape else model
    others = tuple(_others(evidence, model, shape, winners))
    search = searched.confirmed(evidence, model, shape)
    if best is None:
        use, why, do_next = _nothing(evidence, model, winner.ranked(evidence, model, shape))
        return Answer(model, shape, title, _with_search(search, use, None), why, do_next, None, search, others)
    document = evidence.diagnoses.get(key_of(best.row))
    diagnosis = document.content if document else None
    scale = _scale(best, diagnosis)
    why, do_next = NOT_DIAGNOSED, NO_ACTION
    if diagnosis and diagnosis.verdict and scale is not None:
        why, do_next = _why(diagnosis.verdict, scale, best), _do_next(best, diagnosis.verdict)
    if best.disputed or (best.doubted and do_next.startswith(NO_ACTION)):
        do_next = MEASURE_AGAIN + (_all_the_same(evidence, best.doubted) if best.doubted else "")
    if _leads(search, best):
        why = f"of {best.name}: {why}"
    use = ". ".join(filter(None, (_use(best), saturated.sentence(evidence, best.row))))
    return Answer(model, shape, title, _with_search(search, use, best), why, do_next, best, search, others)


def _shape(evidence: Evidence, model: str, settled: list[str]) -> str:
    """The shape that was asked for; else the largest of those with the most measured cases, if one can be recommended
    there or a search confirmed one, or of the others."""
    shapes = [shape for name, shape in evidence.order if name == model]
    asked = evidence.asked.shape
    if asked and (fitting := [shape for shape in shapes if Shape.parse(asked).within(Shape.parse(shape))]):
        return fitting[-1]
    counts = {shape: len(winner.ranked(evidence, model, shape)) for shape in shapes}
    of_search = [shape for shape in shapes if searched.confirmed(evidence, model, shape)]
    candidates = settled or of_search or [shape for shape in shapes if counts[shape]] or shapes
    most = max((counts[shape] for shape in candidates), default=0)
    return next((shape for shape in reversed(candidates) if counts[shape] == most), "")


# --- use -------------------------------------------------------------------------------------------------------


def _use(best: Winner) -> str:
    """`fp16/ort_cuda/graph, 1.06 ms (1.05 to 1.08, n 236), 944 items/s, 2.87× (2.85 to 2.93) as fast`."""
    ties = f". Not distinguishable from {few(best.ties)}" if best.ties else ""
    rate = three_digits(best.items_per_s)
    use = f"{best.name}, {latency(best.row, best.boundary)}, {rate} items/s{_gain(best)}{ties}"
    if best.doubted is None:
        return use
    if best.disputed:
        return f"nothing yet. {_doubted(best.doubted, best.boundary)}. In no doubt: {use}"
    return f"{use}. {_doubted(best.doubted, best.boundary)}"


def _with_search(search: Trail | None, use: str, best: Winner | None) -> str:
    """What a search confirmed beside what the study's own cases say, that first which leads."""
    if search is None:
        return use
    by_search = searched.described(search)
    if _leads(search, best):
        return f"{by_search}, by the search. Of the study's own cases: {use}"
    return f"{use}. The search: {by_search}"


def _leads(search: Trail | None, best: Winner | None) -> bool:
    """Whether a search confirmed another case than the study's fastest, which is not beyond doubt or not as fast."""
    if search is None or best is None or best.disputed:
        return search is not None
    return best.name != search.best and (search.median_ns or 0.0) <= best.median_ms * NS_PER_MS


def _doubted(row: Mapping[str, Any], boundary: str) -> str:
    """A case that was measured faster, where that measurement is in doubt."""
    return f"{name_of(row)} took {three_digits(row[f'{boundary}_ms'])} ms, in doubt: {row[f'{boundary}_doubt']}"


def latency(row: Mapping[str, Any], boundary: str) -> str:
    """`1.06 ms (1.05 to 1.08, n 236)`: a row of Evidence.measured."""
    low, high = row[f"{boundary}_low_ms"], row[f"{boundary}_high_ms"]
    spread = f"{three_digits(low)} to {three_digits(high)}" if not math.isnan(low) else "no interval"
    return f"{three_digits(row[f'{boundary}_ms'])} ms ({spread}, n {row[f'{boundary}_n']:,})"


def _others(
    evidence: Evidence, model: str, answered: str, winners: Mapping[str, Winner]
) -> Iterator[tuple[str, str]]:
    """What to use at each other shape where a case was measured, else why nothing."""
    for name, shape in evidence.order:
        if name == model and shape != answered and (rows := winner.ranked(evidence, model, shape)):
            best, search = winners.get(shape), searched.confirmed(evidence, model, shape)
            use = _in_short(best, evidence.baseline) if best else _nothing(evidence, model, rows)[0]
            yield shape, _with_search(search, use, best)


def _in_short(best: Winner, baseline: str | None) -> str:
    """`fp16/ort_cuda/graph, 0.610 ms, 2.43× ± 0.32 %`; its ties; what was faster, in doubt."""
    parts = [best.name, f"{three_digits(best.median_ms)} ms", *_gain_in_short(best, baseline)]
    if best.disputed and best.doubted:
        return f"nothing yet: {_doubted(best.doubted, best.boundary)}; in no doubt {', '.join(parts)}"
    if best.ties:
        first, *rest = sorted(best.ties, key=lambda name: name != baseline)
        parts.append(f"not distinguishable from {first}{f' and {len(rest)} more' if rest else ''}")
    if best.doubted:
        parts.append(f"{name_of(best.doubted)} was faster, in doubt")
    return ", ".join(parts)


def _gain_in_short(best: Winner, baseline: str | None) -> Iterator[str]:
    """The speed-up as the table of the fastest cases has it; none where it ties with the baseline."""
    speed_up, spread = winner.speed_up_cells(best, baseline)
    if speed_up.missing:
        yield f"speed-up {speed_up.missing}"
    elif isinstance(speed_up.value, float) and baseline not in best.ties:
        yield f"{speed_up.text} ± {spread.text}" if spread.value else speed_up.text
    elif best.is_baseline:
        yield "the baseline"
    elif baseline and speed_up.value is None and best.speed_up["flag"]:
        yield f"no speed-up: {best.speed_up['flag']}"


def _gain(best: Winner) -> str:
    """How the case stands to the baseline."""
    speed_up = best.speed_up
    if best.is_baseline:
        return ", the baseline"
    if speed_up["speed_up"] is None:
        return "" if speed_up is winner.NO_SPEED_UP else f". Speed-up not known: {speed_up['not_measured']}"
    factor = ratio(speed_up["speed_up"])
    if speed_up["flag"]:
        return f". {factor} is no speed-up: {speed_up['flag']}"
    undecided = speed_up["verdict"] in ("same", summary.NO_VERDICT)
    if speed_up["in_doubt"]:
        why = speed_up["reason"].replace(": ", " is in doubt, ", 1)
        return f". Speed-up not known: {why}" if undecided else f", ≈ {factor} as fast: {why}; {FAR_APART}"
    if not stats.is_told(speed_up["speed_up"], speed_up["low"], speed_up["high"]):
        ends = f", {interval(speed_up['low'], speed_up['high'])} times as fast"
        return f". Not distinguishable from the baseline: {ABOUT_ITSELF}" if undecided else ends
    if undecided:
        return f", {factor} ({speed_up['verdict']}: {speed_up['reason']})"
    return f", {factor} ({interval(speed_up['low'], speed_up['high'])}) as fast"


def _nothing(evidence: Evidence, model: str, rows: Sequence[Mapping[str, Any]]) -> tuple[str, str, str]:
    """The three lines where no case of a model can be recommended. rows: what was measured, the fastest first."""
    column = f"{evidence.boundary}_doubt"
    doubted = [row for row in rows if row[column]]
    if doubted:
        first = f"{name_of(doubted[0])}, {latency(doubted[0], evidence.boundary)}"
        return (
            f"nothing yet. {first}, is in doubt: {doubted[0][column]}",
            f"{len(doubted)} of {counted(len(rows), 'measurement')} {'is' if len(doubted) == 1 else 'are'} in doubt",
            MEASURE_AGAIN + _all_the_same(evidence, doubted[0]),
        )
    if rows:
        advice = "calibrate the format with more samples, or leave out its worst layers"
        return "nothing, every case that was measured fails its accuracy tolerance", "see Accuracy", advice
    if coming := evidence.to_come(model):
        are = "is" if coming == 1 else "are"
        return "nothing yet", f"{counted(coming, 'case')} of it {are} still to come", "wait: the study goes on"
    return "nothing, no case was measured", _not_measured(evidence, model), "fix what it names, and run again"


def _all_the_same(evidence: Evidence, row: Mapping[str, Any]) -> str:
    """What a case's profile names to do first, although its time is in doubt."""
    document = evidence.diagnoses.get(key_of(row))
    if document is None or document.content is None or document.content.verdict is None:
        return ""
    action = _action(document.content.verdict, evidence.boundary, row[f"{evidence.boundary}_ms"], profiled=True)
    return f". Its profile says all the same: {_cause(action)}. {action.advice}".rstrip(".") if action else ""


def _not_measured(evidence: Evidence, model: str) -> str:
    """`4 of 6 cases failed, such as fp32/ort_cpu/default: …`: the most frequent reason, of failures first."""
    ended = evidence.outcomes[evidence.outcomes["model"] == model]
    ended = ended[~ended["reason"].fillna("").str.startswith(EXCLUDED)]
    for outcome in ("failed", "refused"):
        rows = ended[ended["outcome"] == outcome]
        if len(rows):
            which = rows[rows["reason"] == rows["reason"].value_counts().index[0]].iloc[0]
            reason = which["reason"].rstrip(".")
            return f"{len(rows)} of {counted(len(ended), 'case')} {outcome}, such as {name_of(which)}: {reason}"
    return "the config leaves out all of its cases, or their jobs broke"


# --- why, and what to do next ----------------------------------------------------------------------------------


def _scale(best: Winner, diagnosis: Diagnosis | None) -> float | None:
    """What turns a share of the diagnosis' total into one of the answer's median; None where both are not known."""
    total = diagnosis and diagnosis.total
    return total.ns / (best.median_ms * NS_PER_MS) if isinstance(total, Total) and total.ns else None


def _findings(verdict: Verdict, boundary: str) -> Iterator[Finding]:
    """The findings about what the boundary contains, the first to work on first."""
    for group in verdict.groups:
        if boundary == "end_to_end" or group.resource in IN_DEVICE:
            yield from (entry.finding for entry in group.findings)


def _action(verdict: Verdict, boundary: str, median_ms: float, profiled: bool = False) -> Finding | None:
    """The first finding whose advice changes something and gains WORTH; `profiled`: of those by a profile alone."""
    least = WORTH * median_ms * NS_PER_MS
    acting = (finding for finding in _findings(verdict, boundary) if finding.acts)
    if profiled:
        acting = (finding for finding in acting if finding.confidence == "medium" and finding.source != "records")
    return next((finding for finding in acting if finding.gain and finding.gain.high_ns > least), None)


def _why(verdict: Verdict, scale: float, best: Winner) -> str:
    """One cause and its share: that of the action, else what most of the time goes to."""
    action = _action(verdict, best.boundary, best.median_ms)
    if action and action.share:
        return f"{_share(action.share, scale)} of the time: {_cause(action)}"
    shares = {name: share for name, share in verdict.shares.items() if name in IN_DEVICE or scale == 1}
    if not shares:
        return "not known, no check found a cause"
    name = max(shares, key=lambda name: shares[name])
    groups = (group for group in verdict.groups if group.resource == name)
    first = next((entry.finding for group in groups for entry in group.findings), None)
    rest = f". {capital(_cause(first))}" if first else ""
    return f"{_share(shares[name], scale)} of the time: {CAUSES[name]}{rest}"


def _cause(finding: Finding) -> str:
    return f"{finding.subject}: {finding.reason}".removeprefix(": ").rstrip(".")


def _share(share: float, scale: float) -> str:
    return percent(min(100.0, 100 * share * scale))


def _do_next(best: Winner, verdict: Verdict) -> str:
    """One action with its bounds; else what would find out more."""
    action = _action(verdict, best.boundary, best.median_ms)
    if action and action.gain:
        thumb = ", a rule of thumb" if action.confidence == "low" else ""
        return f"{action.advice} Saves {_bounds(action.gain, best.median_ms * NS_PER_MS)}{thumb}"
    findings = list(_findings(verdict, best.boundary))
    of_shapes = (finding.advice for finding in findings if finding.change and finding.change.by == "shape")
    if larger := next(of_shapes, ""):
        return f"no check names a change that shortens an inference. {larger}".rstrip(".")
    look = next((finding.advice for finding in findings if not finding.acts), "")
    return f"{NO_ACTION}. To find out more: {look}".rstrip(".") if look else NO_ACTION


def _bounds(gain: Gain, median: float) -> str:
    """`1.2 to 4.31 ms (8 to 28 %)`, `at most 4.31 ms (28 %)`."""
    low, high = (min(median, max(0.0, end)) for end in (gain.low_ns, gain.high_ns))
    if not low or low == high:
        return f"{'' if low else 'at most '}{three_digits(high / NS_PER_MS)} ms ({percent(100 * high / median)})"
    words = f"{three_digits(low / NS_PER_MS)} to {three_digits(high / NS_PER_MS)} ms"
    return f"{words} ({percent(100 * low / median)} to {percent(100 * high / median)})"
