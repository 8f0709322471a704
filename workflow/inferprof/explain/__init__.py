"""Any capture, one command, an answer: foreign files become cases that take the way of a study's."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from inferprof.errors import UserError
from inferprof.explain import opening
from inferprof.explain.opening import Opened
from inferprof.grouping import grouped
from inferprof.readers.kind import Capture

if TYPE_CHECKING:
    from inferprof.explain.foreign import Foreign


def explain(files: Sequence[Path], iteration: str | None = None, model: Path | None = None) -> list[Foreign]:
    """What the files tell, in their order; model: the ONNX file of what ran. Raises UserError for one that can't be
    read."""
    if not model:
        return [_case(group, iteration, None) for group in _groups(files)]
    from inferprof.explain import foreign

    described = foreign.described(model)
    cases = [_case(group, iteration, model) for group in _groups(files)]
    return [replace(case, graph=[*described, *foreign.doubt(model, case.rows)]) for case in cases]


def one(
    files: Sequence[Path], iteration: str | None = None, model: Path | None = None, beside: Sequence[Path] = ()
) -> Foreign:
    """What files tell together that are said to be of one program; beside: all from which their names tell them.
    Raises UserError for two traces."""
    every = [entry for group in _groups(files, beside) for entry in group]
    if sum(capture.timeline is not None for _, capture in every) > 1:
        raise UserError(f"{', '.join(map(str, files))} are several traces: give one on each side of --against")
    return _case(every, iteration, model)


def _groups(files: Sequence[Path], beside: Sequence[Path] = ()) -> list[list[tuple[str, Capture]]]:
    with tempfile.TemporaryDirectory(prefix="inferprof-explain-") as folder:
        return list(_programs(opening.opened(files, Path(folder), beside), Path(folder)))


def _case(group: Sequence[tuple[str, Capture]], iteration: str | None, model: Path | None) -> Foreign:
    from inferprof.explain import foreign

    names, captures = [name for name, _ in group], [capture for _, capture in group]
    *folders, last = names[0].split("/")
    case = foreign.case_of(captures, "_".join([*folders, last.partition(".")[0]]))
    return foreign.of(names, captures, case, iteration, model)


def _programs(opened: Sequence[Opened], folder: Path) -> Iterator[list[tuple[str, Capture]]]:
    """Files that are taken together: one of each kind, which are of one program; several of a kind are cases apart,
    unless their kind joins them, and so are files of two runtimes without a trace of a GPU that has both."""
    by_kind = grouped((file.kind.name, file) for file in opened)
    captures: list[list[tuple[str, Capture]]] = [list(_captures(own, folder)) for own in by_kind.values()]
    alone = [own[0] for own in captures if len(own) == 1]
    if len(alone) == len(captures) and not _split_apart([capture for _, capture in alone]):
        yield alone
        return
    for own in captures:
        yield from ([entry] for entry in own)


def _split_apart(captures: Sequence[Capture]) -> bool:
    """Whether they are of several runtimes, and no timeline holds the work of both."""
    runtimes = {capture.runtime or capture.tool for capture in captures if capture.runtime or capture.parts}
    return len(runtimes) > 1 and all(capture.timeline is None for capture in captures)


def _captures(own: Sequence[Opened], folder: Path) -> Iterator[tuple[str, Capture]]:
    """The captures of files of one kind."""
    kind = own[0].kind
    if len(own) > 1 and kind.join and (joined := kind.join([file.path for file in own])) is not None:
        yield ", ".join(file.name for file in own), joined
        return
    for file in own:
        if kind.read is None:
            raise UserError(f"{file.path} holds nothing to explain")
        with opening.named_as_given(file.given, folder):
            capture = kind.read(file.path)
        yield file.name, capture
