"""What a terminal shows of an answer, as wide as it is; the report is written where one is asked for."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from inferprof.explain import answer
from inferprof.explain.foreign import Foreign

WIDEST = 120


def of_cases(cases: Sequence[Foreign], out: Path | None) -> str:
    """The answers, and where their report is."""
    text = "\n\n".join(answer.render(case, _width()) for case in cases)
    if not out:
        return text
    from inferprof.explain import page

    return f"{text}\ninferprof: wrote {page.write(cases, out)}"


def of_difference(a: Foreign, b: Foreign, model: Path | None, out: Path | None) -> str:
    """What differs between two, and where its report is. Raises UserError for what can't be compared."""
    from inferprof.explain import against, against_answer, page

    difference = against.compare(a, b, model)
    text = answer.render_entries(against.title(difference), against_answer.entries(difference), _width())
    return f"{text}\ninferprof: wrote {page.write_difference(difference, out)}" if out else text


def _width() -> int:
    return min(WIDEST, shutil.get_terminal_size((answer.WIDTH, 25)).columns)
