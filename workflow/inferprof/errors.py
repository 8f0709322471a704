"""The exceptions of inferprof, by who can put them right."""

from __future__ import annotations

import contextlib
import difflib
import errno
import logging
import re
import signal
import site
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")
USER_ERRNOS = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOTDIR, errno.EISDIR),
    *(errno.EEXIST, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.ELOOP),
)
"""Errors of the system that are about the user's folder or disk."""
NEARLY = 0.7
"""How alike two names are, by difflib's ratio, for one to be meant by the other."""
PACKAGE = Path(__file__).parent
LIBRARIES = Path(contextlib.__file__).parent
"""The folder of Python's own modules, with those of other packages below it."""
LARGEST_FILE = 1 << 30
"""Bytes of a file of JSON, YAML or CSV that are read: as Python's objects they take ten times that much memory."""
LAST_EXIT_CODE = 128
"""Larger ones are of shells and tools whose child a signal ended: 128 and its number."""


class UserError(Exception):
    """A user error, which the user can put right: one line that says what was given, what is allowed and what to do.

    The command line prints it without a traceback and exits with 2.
    """


def for_each(what: str, names: Iterable[str], make: Callable[[str], T]) -> dict[str, T]:
    """Name → what `make` makes of it.

    Raises UserError for all names whose turn raises one, so that a user can correct all of them: the error itself
    where it is the only one, else a line for each.
    """
    made, errors = each(names, make)
    if len(errors) == 1:
        raise next(iter(errors.values()))
    if errors:
        raise UserError("\n  ".join([f"{len(errors)} {what} have to be corrected:", *map(str, errors.values())]))
    return made


def each(names: Iterable[str], make: Callable[[str], T]) -> tuple[dict[str, T], dict[str, UserError]]:
    """Name → what `make` makes of it; and name → the UserError that its turn raises."""
    made: dict[str, T] = {}
    errors: dict[str, UserError] = {}
    for name in names:
        try:
            with as_user_error():
                made[name] = make(name)
        except UserError as error:
            errors[name] = error
    return made, errors


class SystemRefusal(UserError):
    """The machine, not the case, is in the way: a full disk, a folder that can't be written to. Never a result."""


class CaseFailed(Exception):
    """A stage of a case that ran and failed in a way that is itself a result (out of memory, NaN, shape rejected).

    The stage's document keeps the reason, the job exits with 0 and the report shows it. `stage` is where it failed
    (the innermost `outcomes.stage`), `notes` what failed after it, in clean-up.
    """

    def __init__(self, reason: str, stage: str | None = None) -> None:
        super().__init__(reason)
        self.stage = stage
        self.notes: list[str] = []


def ended(returncode: int) -> str:
    """`exited with 1`, `was ended by SIGSEGV`: of a process, or of what a shell or a tool ran (128 + signal)."""
    number = -returncode if returncode < 0 else returncode - LAST_EXIT_CODE
    if number <= 0:
        return f"exited with {returncode}"
    names = {value.value: value.name for value in signal.Signals}
    return f"was ended by {names.get(number, f'signal {number}')}"


class ToolError(Exception):
    """An external tool that failed: its command and the last lines of its log."""

    def __init__(self, command: Sequence[str], returncode: int, log: str, lines: int = 15) -> None:
        self.returncode = returncode
        self.summary = f"`{' '.join(command)}` {ended(returncode)}"
        said = [line.strip() for line in log.splitlines() if line.strip()]
        self.reason = f"{Path(command[0]).name} {ended(returncode)}{f': {said[-1]}' if said else ''}"
        tail = "\n".join(log.rstrip().splitlines()[-lines:])
        super().__init__(f"{self.summary}; the end of its log:\n{tail}")


def reason_of(error: BaseException, lines: int | None = None) -> str:
    """`out of memory on the host: …`, or `RuntimeError: …`: an exception by its type and its lines, or so many."""
    said = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    no_memory = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    kind = "out of memory on the host" if no_memory else type(error).__name__
    return f"{kind}: {' '.join(said[:lines])}" if said else kind


def failure_of(error: Exception) -> str:
    """What stands in place of what a plug-in should have made, when it raised; the traceback goes to the log.

    Raises the error again where the machine is in the way: a full disk ends the stage.
    """
    if isinstance(error, SystemRefusal) or refused_by_system(error):
        raise error
    if isinstance(error, UserError):
        return str(error)
    logging.getLogger("inferprof").error("a plug-in failed", exc_info=error)
    return f"{reason_of(error)}; this is a defect of {raised_at(error) or 'inferprof'}"


def raised_at(error: BaseException, only: str = "") -> str | None:
    """`my_plot.py:12`: the innermost line of a plug-in, else of inferprof, in which an error was raised, if any.

    Libraries are passed over. `only`: in modules whose names begin so. The log has the whole path.
    """
    every = [
        (Path(place.tb_frame.f_code.co_filename), place.tb_lineno)
        for place in _traceback(error)
        if str(place.tb_frame.f_globals.get("__name__")).startswith(only)
    ]
    inside = [(file.relative_to(PACKAGE.parent), line) for file, line in every if file.is_relative_to(PACKAGE)]
    folders = (PACKAGE, LIBRARIES, *map(Path, site.getsitepackages()))
    named = ((file, line) for file, line in every if not file.name.startswith("<"))  # <string>: made by Python itself
    own = [(file.name, line) for file, line in named if not any(map(file.is_relative_to, folders))]
    return next((f"{file}:{line}" for file, line in reversed(own or inside)), None)


def _traceback(error: BaseException) -> Iterator[TracebackType]:
    place = error.__traceback__
    while place:
        yield place
        place = place.tb_next


@contextlib.contextmanager
def without_exit() -> Iterator[None]:
    """An exit out of other people's code is a RuntimeError there: it would end a report, or a job, without a word."""
    try:
        yield
    except SystemExit as error:
        *_, last = _traceback(error)
        if Path(last.tb_frame.f_code.co_filename).is_relative_to(PACKAGE):
            raise
        raise RuntimeError(f"sys.exit({error.code!r}) was called").with_traceback(error.__traceback__) from None


def refused_by_system(error: Exception) -> bool:
    """Whether the user's folder or disk is in the way."""
    return isinstance(error, OSError) and error.errno in USER_ERRNOS


@contextlib.contextmanager
def as_user_error() -> Iterator[None]:
    """Errors of the system with one of USER_ERRNOS become a SystemRefusal, which is a user error."""
    try:
        yield
    except OSError as error:
        if not refused_by_system(error):
            raise
        where = error.filename or "standard output or a temporary file"
        raise SystemRefusal(f"{where}: {error.strerror}") from error


def in_one_line(error: Exception, most: int = 120) -> str:
    """What an error says, without line breaks and of bounded length; of a missing key, which one."""
    text = (
        f"no {error.args[0]!r}" if isinstance(error, KeyError) and error.args else str(error) or type(error).__name__
    )
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


@contextlib.contextmanager
def failures_of(tool: str) -> Iterator[None]:
    """What another's tool raises becomes a CaseFailed with the first line of its reason; our own errors stay."""
    try:
        with as_user_error():
            yield
    except (UserError, CaseFailed, ToolError):
        raise
    except Exception as error:
        raise CaseFailed(f"{tool}: {reason_of(error, lines=1)}") from error


def no_file(path: Path) -> UserError:
    """What is said of a path that is no file."""
    if path.is_dir():
        return UserError(f"{path}: a folder, not a file")
    return UserError(f"{path}: {'a pipe or device, not a file' if path.exists() else 'no such file'}")


def require_file(path: Path, most: int = LARGEST_FILE) -> Path:
    """The same path. Raises UserError where it is no file of at most so many bytes: reading a pipe that nobody writes
    to never ends, and neither does /dev/zero."""
    with as_user_error():
        if not path.is_file():
            raise no_file(path)
        if (size := path.stat().st_size) > most:
            raise UserError(f"{path} has {size >> 20:,} MiB; at most {most >> 20:,} are read")
    return path


def unknown(kind: str, names: Iterable[str], allowed: Iterable[str]) -> UserError:
    """`unknown models nope; known: minilm, vit_tiny`: the one wording for a name that does not exist."""
    given, existing = list(names), sorted(allowed)
    listed = f"unknown {kind} {', '.join(given)}; known: {', '.join(existing) or 'none'}"
    return UserError(listed + meant(given, allowed))


def meant(names: Iterable[str], allowed: Iterable[str]) -> str:
    """`; did you mean minilm?`, for names that are spelled nearly as one of those allowed, or as the program in the
    titles of plug-ins, where `allowed` maps to these: `onnxruntime`, `pytorch`. Else nothing."""
    near = dict.fromkeys(match for name in names for match in _near(name, allowed))
    return f"; did you mean {', '.join(near)}?" if near else ""


def _near(name: str, allowed: Iterable[str]) -> list[str]:
    titles = (
        {key: getattr(plugin, "title", None) for key, plugin in allowed.items()}
        if isinstance(allowed, Mapping)
        else {}
    )
    alike = difflib.get_close_matches(name, list(allowed), 5, NEARLY)
    # Of two that are as near, such as the two halves of a long name, the one that begins alike.
    nearest = sorted(alike, key=lambda other: _likeness(name, other), reverse=True)
    return nearest[:1] or [key for key, title in titles.items() if title and _is_of(name, title)]


def _likeness(name: str, other: str) -> tuple[float, int]:
    """The share of letters in common, and how many of the first ones are."""
    matcher = difflib.SequenceMatcher(None, other, name)
    first = matcher.get_matching_blocks()[0]
    return matcher.ratio(), first.size if first.a == first.b == 0 else 0


def _is_of(name: str, title: str) -> bool:
    """Whether a name is or begins with what stands in front of a title's comma, whatever is between the letters:
    `onnx-runtime-gpu` is of `ONNX Runtime, CUDA`."""
    given, program = (re.sub(r"[\W_]", "", text).lower() for text in (name, title.partition(",")[0]))
    return given.startswith(program)
