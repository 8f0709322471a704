"""While a study runs: which jobs are at work, and how long the rest takes, a line at least every ten seconds.

It listens to the workflow's log, whose events say which job begins and ends. How long a kind of job takes is learned
from those of this machine that ended, in this run or an earlier one (FILE); before any did, from the budgets of what
it does. It waits in a thread of its own and wakes every SILENCE_S, so that it takes nothing from what is measured.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from inferprof import escape
from inferprof.errors import UserError
from inferprof.files import write_text

SILENCE_S: Final = 10.0
FILE: Final = Path(".snakemake", "inferprof-durations.json")
"""Machine → kind of job → seconds that it took, of which the latest count most."""
NEWS: Final = 0.3
"""How much of what is learned the latest job is."""
BUDGETS_S: Final[Mapping[str, float]] = {
    "benchmark": 10.0,
    "serve": 60.0,
    "build": 60.0,
    "compile": 60.0,
    "capture": 20.0,
    "export": 20.0,
    "quantize": 20.0,
    "accuracy": 10.0,
    "diagnose": 10.0,
    "write_report": 15.0,
}
"""Ours: what a rule takes, by the beginning of its name, where nothing was learned yet; OTHER_S for others."""
OTHER_S: Final = 3.0
_STEP: Final = re.compile(r"^inferprof: (?:.*: )?(.+ \(\d+ of \d+\)), \d+ s", re.MULTILINE)
"""A line of progress.task in a log."""
TAIL: Final = 4096
"""Bytes of a log that are read."""
REASON: Final = 300
"""Characters of a reason; its document has it whole."""
EVENTS: Final = "snakemake.logging"
"""The logger of the workflow's events."""


def kind(rule: str, wildcards: Mapping[str, Any]) -> str:
    """What takes about as long: the rule and, where it has one, the backend."""
    return "/".join(filter(None, (rule, wildcards.get("backend"))))


@dataclass
class _Running:
    kind: str
    title: str
    began: float
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()

    def doing(self, now: float) -> str:
        """`Measure vit_tiny b1 (20 s, device (3 of 8))`: the step is the last one of its log."""
        steps = (match[1] for file in self.logs for match in _STEP.finditer(_tail(Path(file))))
        *_, step = ("", *steps)
        return f"{self.title} ({', '.join(filter(None, (f'{now - self.began:.0f} s', step)))})"


class Pace(logging.Handler):
    """Says where a workflow stands. `remaining` gives the kinds of the jobs that are not done."""

    def __init__(
        self,
        machine: str,
        remaining: Callable[[], Iterable[str]],
        file: Path = FILE,
        write: Callable[[str], object] = sys.stderr.write,
        clock: Callable[[], float] = time.monotonic,
        outcome_of: Callable[[Path], str | None] = lambda file: None,
    ) -> None:
        super().__init__()
        self._outcome_of = outcome_of
        self._machine, self._remaining, self._file = machine, remaining, file
        self._write, self._clock = write, clock
        self._learned = _read(file)
        self._running: dict[Any, _Running] = {}
        self._said_at = clock()

    def emit(self, record: logging.LogRecord) -> None:
        """Take note of an event. A job that failed teaches nothing."""
        event, now = str(getattr(record, "event", "")), self._clock()
        self._said_at = now
        if event == "job_info":
            of = kind(record.__dict__["rule_name"], record.__dict__.get("wildcards") or {})
            title = record.__dict__.get("rule_msg") or record.__dict__["rule_name"]
            files = (tuple(map(str, record.__dict__.get(name) or ())) for name in ("input", "output", "log"))
            self._running[record.__dict__["jobid"]] = _Running(of, title, now, *files)
        elif event == "job_finished" and (done := self._running.pop(record.__dict__["job_id"], None)):
            self._learn(done.kind, now - done.began)
            if failed := self._failed(done):
                self._write(escape.line(f"inferprof: {done.title}: {failed}") + "\n")
        elif event == "job_error":
            self._running.pop(record.__dict__.get("jobid"), None)

    def _failed(self, job: _Running) -> str:
        """At which stage a job that ended failed, and why; that it did not run, where a file that it needs failed."""
        why = next((failure for file in job.outputs if (failure := self._failure(file))), "")
        if why and why in map(self._failure, job.inputs):
            return f"not run, {why.partition(': ')[0]}"
        return why if len(why) <= REASON else f"{why[: REASON - 1]}…"

    def _failure(self, file: str) -> str:
        with contextlib.suppress(UserError, OSError, LookupError):  # that it can't be read is said by who needs it
            outcome = " ".join((self._outcome_of(Path(file)) or "").split())
            return outcome if outcome.startswith("failed at ") else ""
        return ""

    def _learn(self, of: str, seconds: float) -> None:
        own = self._learned.setdefault(self._machine, {})
        own[of] = seconds if of not in own else own[of] + NEWS * (seconds - own[of])
        with contextlib.suppress(OSError):  # a study is worth more than its estimate
            write_text(self._file, json.dumps(self._learned, indent=1, sort_keys=True))

    def seconds(self, of: str) -> float:
        """What a job of a kind takes, as far as is known."""
        own = self._learned.get(self._machine, {})
        return own.get(of) or next((took for name, took in BUDGETS_S.items() if of.startswith(name)), OTHER_S)

    def left_s(self) -> float:
        """How long the rest takes if one job follows the other."""
        now = self._clock()
        kinds = Counter(self._remaining())
        spent = sum(min(now - job.began, self.seconds(job.kind)) for job in list(self._running.values()))
        return max(0.0, sum(count * self.seconds(of) for of, count in kinds.items()) - spent)

    def line(self) -> str:
        """`inferprof: 12 jobs left, about 3 min; at work for 21 s: Measure vit_tiny fp32 …`."""
        now = self._clock()
        jobs = sorted(self._running.values(), key=lambda job: job.began)
        work = ", ".join(job.doing(now) for job in jobs[:2])
        more = f" and {len(jobs) - 2} more" if len(jobs) > 2 else ""
        count = sum(1 for _ in self._remaining())
        left = f"{count} job{'' if count == 1 else 's'} left, {in_words(self.left_s())}"
        return escape.line(f"inferprof: {left}; at work: {work or 'none yet'}{more}")

    def say(self) -> None:
        """Write the line."""
        self._said_at = self._clock()
        self._write(f"{self.line()}\n")
        sys.stderr.flush()

    def wait_s(self) -> float:
        """How long silence may last still."""
        return self._said_at + SILENCE_S - self._clock()


def in_words(seconds: float) -> str:
    """`about 40 s`, `about 3 min`, `about 2 h 10 min`."""
    if seconds < 90:
        return f"about {max(5, 5 * math.ceil(seconds / 5)):.0f} s"
    minutes = math.ceil(seconds / 60)
    return f"about {minutes} min" if minutes < 90 else f"about {minutes // 60} h {minutes % 60} min"


def follow(
    machine: str, remaining: Callable[[], Iterable[str]], outcome_of: Callable[[Path], str | None] = lambda file: None
) -> Pace:
    """Listen to the workflow's events from now on, and say a line wherever nothing else did for SILENCE_S, and one of
    each job that failed. outcome_of: `failed at STAGE: reason` of a file that could not be made."""
    pace = Pace(machine, remaining, outcome_of=outcome_of)
    logging.getLogger(EVENTS).addHandler(pace)
    pace.say()
    threading.Thread(target=_talk, args=(pace, threading.Event().wait), daemon=True).start()
    return pace


def _talk(pace: Pace, wait: Callable[[float], object]) -> None:
    while True:
        if (left := pace.wait_s()) > 0:
            wait(left)
        else:
            with contextlib.suppress(RuntimeError):  # jobs came and went while they were counted
                pace.say()


def _tail(file: Path) -> str:
    """The end of a log; empty where there is none."""
    try:
        with file.open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - TAIL))
            return log.read().decode(errors="replace")
    except OSError:
        return ""


def _read(file: Path) -> dict[str, dict[str, float]]:
    """What earlier runs learned; nothing where it cannot be read."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return {str(name): dict(_numbers(own)) for name, own in content.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def _numbers(own: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for of, seconds in own.items():
        if isinstance(seconds, int | float) and 0 < seconds < math.inf:
            yield of, float(seconds)
