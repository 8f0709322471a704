"""Asks every check about one case, or about all cases of a model."""

from __future__ import annotations

import dataclasses
import json
import math
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from inferprof import registry, spread
from inferprof.case import Case
from inferprof.diagnosis import verdict
from inferprof.diagnosis.frames import load, of_model
from inferprof.diagnosis.times import on_gpu, on_several_gpus
from inferprof.errors import UserError, failure_of, without_exit
from inferprof.files import write_document
from inferprof.findings import ELSEWHERE, NEEDS, Answer, Change, Clear, Finding, Frames, Gain, Need, NotAssessed
from inferprof.plugins import Check
from inferprof.tables import records

BEYOND: Final = 1.1
"""Ours, times the total: beyond it a gain was told of a capture without iterations, or of several of them."""
CASES_OF_A_PART: Final = 24
"""As many are worth a process that has to read what all cases of their model have in common."""
_HAS: Final[Mapping[Need, Callable[[Frames], bool]]] = {
    "gpu": on_gpu,
    "cpu": lambda frames: not on_gpu(frames),
    "ranks": on_several_gpus,
    "record": lambda frames: len(frames.records) > 0,
    "timeline": lambda frames: frames.tool is not None,
    "counters": lambda frames: bool(frames.profiles["tool"].isin(registry.counters()).any()),
    "environment": lambda frames: frames.documents.environment is not None,
    "bandwidth": lambda frames: frames.documents.bandwidth is not None,
    "links": lambda frames: frames.documents.links is not None,
    "load": lambda frames: bool(frames.documents.serving),
    "cache": lambda frames: bool(len(frames.records)) and frames.record.operation is not None,
}


def diagnose(results: Path, machine: str, case: Case, thresholds: Mapping[str, float]) -> dict[str, Any]:
    """The document of a case in a results folder. Raises UserError for a file that can't be read."""
    frames = load(results, machine, case, thresholds)
    return document(frames, answers(frames))


def diagnose_model(results: Path, machine: str, model: str, thresholds: Mapping[str, float], out: Path) -> int:
    """Write the document of each case of a model that has a record, as `out`/{precision}/…/{shape}.json; how many.

    Raises UserError as `diagnose` does, and where no case has a record.
    """
    diagnosed = _documents(results, machine, model, thresholds, slice(None))
    for case, diagnosis in diagnosed:
        path = out.joinpath(*case.path.parts[1:])
        write_document(path.with_name(f"{path.name}.json"), "diagnosis", diagnosis)
    return len(diagnosed)


def documents_of_models(
    results: Path, machine: str, models: Sequence[str], thresholds: Mapping[str, float], processes: int
) -> Iterator[list[tuple[Case, dict[str, Any]]] | Exception]:
    """The documents of the cases of models that have a record, in parts, made by at most so many processes; what was
    raised, as `diagnose_model` does, in place of a part."""
    parts = [
        (results, machine, model, thresholds, part)
        for model in models
        for part in _parts(len(records.of_model(results, machine, model)), processes)
    ]
    with spread.over(min(processes, len(parts))) as every:
        yield from every.begin(_documents, parts)()


def _parts(count: int, processes: int) -> list[slice]:
    """So many cases in one part, or in those that are worth a process; one part also of none."""
    size = CASES_OF_A_PART if processes > 1 else max(1, count)
    return [slice(start, start + size) for start in range(0, max(1, count), size)]


def _documents(
    results: Path, machine: str, model: str, thresholds: Mapping[str, float], part: slice
) -> list[tuple[Case, dict[str, Any]]]:
    """The document of each case of a model that has a record. Raises UserError as `diagnose_model` does."""
    every = of_model(results, machine, model, thresholds, part)
    return [(frames.case, document(frames, answers(frames))) for frames in every]


def answers(frames: Frames) -> list[Answer]:
    """What each check says of the case, by name."""
    return [answer(check, frames) for check in registry.checks().values()]


def answer(check: Check, frames: Frames) -> Answer:
    """One check's answer; what it needs and does not have is named, all of it; on a CPU the GPU alone.

    A check that raises, or gives what no document can hold, is not assessed, with that as the reason.
    """
    try:
        with without_exit():
            return _kept(_answer(check, frames))
    except NotAssessed as lacking:
        return Answer(check.name, check.level, "not assessed", f"needs {lacking}")
    except Exception as error:  # The other checks are worth having without this one.
        return Answer(check.name, check.level, "not assessed", failure_of(error))


def _kept(given: Answer) -> Answer:
    """The same. Raises UserError where no document can hold it."""
    try:
        content = plain(given)
        json.dumps(content, allow_nan=False, ensure_ascii=False).encode()
        msgspec.convert(content, Answer)
    except (ValueError, TypeError, AttributeError) as error:  # not finite, half letters, of another type
        raise UserError(f"the check {given.check} gave what no diagnosis can hold: {error}") from None
    return given


def _answer(check: Check, frames: Frames) -> Answer:
    missing: Sequence[Need] = [need for need in check.needs if not _HAS[need](frames)]
    if missing:
        elsewhere = [need for need in missing if need in ELSEWHERE and _is_told(need, frames)]
        named: Sequence[Need] = elsewhere or missing
        raise NotAssessed("; ".join(NEEDS[need] for need in named))
    judged = check.run(frames.apart() if registry.from_outside(check.run) else frames)
    if isinstance(judged, Clear):
        _require_gains(check, [judged])
        gain = bounded(frames, judged.gain)
        return Answer(check.name, check.level, "clear", judged.reason, judged.evidence, gain=gain)
    findings = tuple(judged) if isinstance(judged, Iterable) else ()
    if not findings or not all(isinstance(finding, Finding) for finding in findings):
        raise UserError(f"the check {check.name} gave neither findings nor Clear, but {reprlib.repr(judged)}")
    _require_gains(check, findings)
    return Answer(
        check.name, check.level, "found", findings=tuple(_as_tried(frames, finding, check) for finding in findings)
    )


def _require_gains(check: Check, parts: Iterable[Any]) -> None:
    """Raise UserError for a gain of a user's check that is no time, or whose bounds are the wrong way round."""
    gains = [part.gain for part in parts if part.gain is not None] if registry.from_outside(check.run) else []
    if wrong := [gain for gain in gains if not 0 <= gain.low_ns <= gain.high_ns < math.inf]:
        raise UserError(f"the check {check.name} gave {wrong[0]}; allowed: finite, from 0 on, the lower bound first")


def _is_told(need: Need, frames: Frames) -> bool:
    """Whether the case is known not to be what a check of other cases needs."""
    alone = need in ("ranks", "cache") and _HAS["timeline"](frames)
    return need == "cpu" or alone or _HAS["record"](frames)


def _as_tried(frames: Frames, finding: Finding, check: Check) -> Finding:
    """A finding that gains no more than all, with its change as data and what the study says of it."""
    change = finding.change or Change(check.by if finding.acts else "profilers")
    return msgspec.structs.replace(
        finding, gain=bounded(frames, finding.gain), change=change, tried=frames.tried(finding.options)
    )


def bounded(frames: Frames, gain: Gain | None) -> Gain | None:
    """A gain of no more than the total. One far beyond it is of another time than the total: no bound is known."""
    if gain is None or frames.total is None:
        return gain
    if gain.high_ns > BEYOND * frames.total.ns:
        return None
    return Gain(min(gain.low_ns, frames.total.ns), min(gain.high_ns, frames.total.ns))


def document(frames: Frames, given: list[Answer]) -> dict[str, Any]:
    """The diagnosis of a case as JSON: the verdict, the answers behind it, and what their shares are of."""
    return {
        "schema": 1,
        "machine": frames.machine,
        "case": dataclasses.asdict(frames.case),
        "total": plain(frames.total),
        "thresholds": dict(frames.thresholds),
        "verdict": plain(verdict.of_case(frames, given)),
        "answers": plain(given),
    }


def plain(value: Any) -> Any:
    """A part of a document as JSON has it, also with NumPy's numbers in it."""
    return msgspec.to_builtins(value, enc_hook=lambda number: number.item())
