"""What a terminal shows of an answer, as wide as it is; the report is written where one is asked for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from inferprof.explain import answer
from inferprof.explain.foreign import Foreign

WIDEST = 120


def of_cases(cases: Sequence[Foreign], out: Path | None) -> Iterator[str]:
    """The answers, then where their report is. Raises OSError behind them where none can be written."""
    yield "\n\n".join(answer.render(case, _width()) for case in cases)
    if out:
        from inferprof.explain import page

        yield f"inferprof: wrote {page.write(cases, out)}"


def of_difference(a: Foreign, b: Foreign, model: Path | None, out: Path | None) -> Iterator[str]:
    """What differs between two, then where its report is. Raises UserError for what can't be compared, and OSError
    behind the answer where no report can be written."""
    from inferprof.explain import against, against_answer, page

    difference = against.compare(a, b, model)
    yield answer.render_entries(against.title(difference), against_answer.entries(difference), _width())
    if out:
        yield f"inferprof: wrote {page.write_difference(difference, out)}"


def _width() -> int:
    return min(WIDEST, shutil.get_terminal_size((answer.WIDTH, 25)).columns)
