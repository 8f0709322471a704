"""How a stage of a case ends: done, failed with a reason that its document keeps, or broken with its process.

Every stage that makes a document or a product of a case goes through `stage`; a product that could not be made is an
empty file with the reason beside it, so that each later stage ends with the first reason.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, TypeVar

from inferprof import documents, escape, forked, registry
from inferprof.documents import Kind
from inferprof.documents.base import Outcome
from inferprof.errors import (
    LAST_EXIT_CODE,
    CaseFailed,
    SystemRefusal,
    ToolError,
    UserError,
    as_user_error,
    raised_at,
    reason_of,
    without_exit,
)
from inferprof.files import beside, document_text, read_json, write_document, write_text

T = TypeVar("T")
FACTS: Final[Mapping[str, Kind]] = {".build.json": "build", ".convert.json": "convert"}
"""Suffixes of the documents that say how the product beside them was made."""
FAILED: Final = 4
"""The exit code of a verb started by hand whose stage failed: in a study that is a result, and the job is done."""


def exit_code(document: Mapping[str, Any] | str | None) -> int:
    """How a verb ends that gave this document, or failed for this reason: FAILED by hand, 0 as the job of a study."""
    failed = document.get("status") == "failed" if isinstance(document, Mapping) else document is not None
    return FAILED if failed and job_limit_s() is None else 0


def job_limit_s() -> float | None:
    """The limit of this job in seconds; None where inferprof was started by hand."""
    given = os.environ.get(forked.LIMIT)
    return float(given) if given else None


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """What fails inside is CaseFailed of this stage, or of a stage inside of it.

    The traceback of an exception that nobody expected goes to stderr where that is a job's log, or Python's developer
    mode asks for it (PYTHONDEVMODE=1). Raises SystemRefusal as it is; by hand also UserError and ToolError, which in
    a job are about its case, and so results, unless a signal ended the tool.
    """
    try:
        with as_user_error(), without_exit():
            yield
    except CaseFailed as error:
        error.stage = error.stage or name
        raise
    except SystemRefusal:
        raise
    except (UserError, ToolError) as error:
        by_signal = isinstance(error, ToolError) and not 0 <= error.returncode <= LAST_EXIT_CODE
        if job_limit_s() is None or by_signal:
            raise
        raise CaseFailed(error.reason if isinstance(error, ToolError) else str(error), name) from error
    except Exception as error:
        logged = job_limit_s() is not None or sys.flags.dev_mode
        if logged and not isinstance(error, MemoryError):  # how much was asked for says all
            traceback.print_exc()
        plugin = raised_at(error, only=registry.OUTSIDE_MODULE)
        raise CaseFailed(reason_of(error) + (f" ({plugin})" if plugin else ""), name) from error


def failure(error: CaseFailed) -> dict[str, Any]:
    """What the document of a failed stage says instead of its content."""
    notes = {"notes": error.notes} if error.notes else {}
    return {"status": "failed", "stage": error.stage, "reason": escape.text(str(error)), **notes}


def attempt(
    name: str, make: Callable[[], Mapping[str, Any]], kind: Kind, head: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What a stage makes, or its `failure`, which is said on stderr too.

    It fails also where that, behind what `head` says of it, would be no document of its kind (NaN, out of range).
    """
    try:
        with stage(name):
            made = dict(make())
            try:
                document_text({**(head or {}), **made}, kind)
            except ValueError as error:
                raise CaseFailed(f"what it gave is no {kind} document: {str(error).removeprefix(': ')}") from None
            return made
    except CaseFailed as error:
        said(error)
        return failure(error)


def said(error: CaseFailed) -> str:
    """Say on stderr, in one line, that a stage failed, and return it."""
    reason = f"failed at {error.stage}: {error}"
    sys.stderr.write(escape.text(f"inferprof: {reason}\n"))
    return reason


def require_made(product: Path) -> None:
    """Raise CaseFailed with the first reason where an earlier stage could not make a product: it is empty then."""
    if not product.exists() or product.stat().st_size:
        return
    for suffix, kind in FACTS.items():
        if (path := beside(product, suffix)).exists():
            facts: Outcome = documents.read(path, kind)
            raise CaseFailed(facts.reason or f"{product} is empty", facts.stage)
    raise CaseFailed(f"{product} is empty, and no {' or '.join(FACTS)} beside it says why")


def record(out: Path | None, kind: Kind, make: Callable[[], Mapping[str, Any]], *products: Path) -> dict[str, Any]:
    """The document of a stage that makes something of products of earlier ones, or why it, or one of those, failed;
    written where it has a place."""

    def content() -> Mapping[str, Any]:
        for product in products:
            require_made(product)
        return make()

    document = attempt(kind, content, kind)
    if out:
        write_document(out, kind, document)
    return document


def make(out: Path, kind: Kind, build: Callable[[], Mapping[str, Any]], *products: Path) -> dict[str, Any]:
    """Make the product `out` and write its facts beside it; where that failed, the product is an empty file.

    Returns the facts.
    """
    suffix = next(suffix for suffix, of in FACTS.items() if of == kind)
    facts = record(beside(out, suffix), kind, build, *products)
    if facts.get("status") == "failed":
        write_text(out, "")
    return facts


def told(file: Path) -> str | None:
    """`ok`, or at which stage a file failed and why; None of a file that tells no outcome."""
    suffix = {".engine": ".build.json", ".onnx": ".convert.json"}.get(file.suffix)
    document = beside(file, suffix) if suffix else file
    if document.suffix != ".json" or not document.is_file():
        return None
    content = read_json(document)
    status = content.get("status") if isinstance(content, dict) else None
    return f"failed at {content['stage']}: {content['reason']}" if status == "failed" else status


def ends(files: Iterable[str], *, named: bool) -> list[str]:
    """A line for each file of a stage that failed; of those that were asked for by name also where they did not."""
    every = ((file, told(Path(file))) for file in files if not file.endswith(tuple(FACTS)))  # with its product
    return [f"{file}: {outcome}" for file, outcome in every if outcome and (named or outcome != "ok")]


def make_onnx(out: Path, convert: Callable[[], Mapping[str, Any]], *products: Path) -> dict[str, Any]:
    """Make an ONNX file; its facts, which it returns, hold its size and the seconds that it took."""
    started = time.monotonic()

    def timed() -> Mapping[str, Any]:
        return {**convert(), "bytes": out.stat().st_size, "seconds": round(time.monotonic() - started, 1)}

    return make(out, "convert", timed, *products)


@contextlib.contextmanager
def opened(manager: AbstractContextManager[T]) -> Iterator[T]:
    """Enter a context manager of a plug-in as the stage `load` and leave it as the stage `close`.

    What fails inside stays what failed: an exception of the clean-up behind it becomes a note of the first one.
    """
    with stage("load"):
        value = manager.__enter__()
    try:
        yield value
    except Exception as first:
        try:
            manager.__exit__(type(first), first, first.__traceback__)
        except Exception as last:
            raise _first_of(first, last) from None
        raise
    except BaseException as first:
        manager.__exit__(type(first), first, first.__traceback__)
        raise
    else:
        with stage("close"):
            manager.__exit__(None, None, None)


def _first_of(first: Exception, last: Exception) -> Exception:
    """What is to be said of a block that failed and of what the clean-up behind it raised.

    A manager may have raised `first` anew in its own words (`raise … from …`, the one exception whose context is
    `first` itself); all that came after is of the clean-up.
    """
    later = [last]
    while (before := later[-1].__context__) is not None and before is not first:
        later.append(before)  # type: ignore[arg-type]  # contexts of exceptions are exceptions
    translated = later[-1].__suppress_context__ and later[-1].__context__ is first
    reason = later.pop() if translated else first
    if later and later[-1] is not first:
        said = CaseFailed(str(reason) if isinstance(reason, CaseFailed) else reason_of(reason))
        said.stage = getattr(reason, "stage", None)
        said.notes = [f"close: {reason_of(error)}" for error in reversed(later) if error is not first]
        return said
    return reason
