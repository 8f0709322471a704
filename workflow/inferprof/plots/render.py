"""Draws a plot for the page, and into a file beside it, SVG or PNG: the same bytes for the same frame."""

from __future__ import annotations

import collections
import hashlib
import io
import re
import reprlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from inferprof import spread
from inferprof.errors import UserError, failure_of, without_exit
from inferprof.files import write_text
from inferprof.plots.style import INK, STYLE, TIP
from inferprof.plugins import Plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    Drawing = tuple[Callable[[pd.DataFrame], Figure], pd.DataFrame, Path]

SVG, PNG = ".svg", ".png"
PNG_DPI = 150
SVG_HEAD = '<?xml version="1.0" encoding="utf-8"?>\n'
ON_WHITE = '<rect width="100%" height="100%" fill="white"/>'
"""A file beside the page stands on no page: its text is black there."""
FALLBACK_FONTS = "'DejaVu Sans', Verdana, sans-serif"
"""Text stays text, so that it can be read aloud and found; Verdana is as wide as the font of the layout."""


REPEATED = 4
"""A style that so many shapes have is worth a class."""
WITHOUT = re.compile(r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>|<!--.*?-->", re.DOTALL)
"""What no page needs: it has the one style itself."""


def lacks(plot: Plot, frame: pd.DataFrame) -> str | None:
    """Why a plot cannot be drawn of a frame, or None."""
    for column, count in plot.needs.items():
        if column not in frame:
            return f"{column} is no column of the measurements"
        values = frame[column].dropna()
        # A whole series of samples has no equal, and is costly to compare.
        whole = values.map(lambda value: hasattr(value, "__len__") and not isinstance(value, str)).any()
        distinct = values.nunique() if count > 1 and not whole else min(len(values), count)
        if distinct == 0:
            return f"{column} was not measured"
        if distinct < count:
            return f"it needs {count} different values of {column}, and there is {distinct}"
    return None


def render(plot: Plot, frame: pd.DataFrame, file: Path) -> str:
    """Write the plot on white; return its <svg>, whose text and axes take the colour of the page around it."""
    return written(plot.draw, frame, file)


def written(draw: Callable[[pd.DataFrame], Figure], frame: pd.DataFrame, file: Path) -> str:
    """The same of what is no Plot. The file is what its suffix says: PNG, drawn once more, or else SVG."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context(dict(STYLE)), warnings.catch_warnings():
        # Names may be in any script. On the page the reader's fonts draw it; in the PNG a box stands for each letter.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        figure = draw(frame.copy(deep=False))  # what one changes in it is no other's
        if not isinstance(figure, Figure):
            raise UserError(f"it gave {reprlib.repr(figure)}, and no Figure of matplotlib")
        svg = io.StringIO()
        # Not Figure.savefig, which draws each file twice: the first of the two lays out for both.
        FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None, "Creator": None})
        if file.suffix == PNG:
            _write_png(figure, file)
    element = _inline(svg.getvalue())
    if file.suffix != PNG:
        write_text(file, SVG_HEAD + element.replace(">", ">" + ON_WHITE, 1) + "\n")
    return element


def _write_png(figure: Figure, file: Path) -> None:
    """Drawn once more, on white; the layout is that of the SVG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_layout_engine("none")
    figure.set_facecolor("white")
    figure.set_dpi(PNG_DPI)
    FigureCanvasAgg(figure).print_png(file, metadata={"Software": None})


@dataclass(frozen=True)
class Failed:
    """What a plot is that raised."""

    reason: str


def attempt(draw: Callable[[pd.DataFrame], Figure], frame: pd.DataFrame, file: Path) -> str | Failed:
    """`written`, or why there is none: the other plots are worth having without it."""
    try:
        with without_exit():
            return written(draw, frame, file)
    except Exception as error:
        file.unlink(missing_ok=True)
        return Failed(failure_of(error))


def every(drawings: Sequence[Drawing], processes: spread.Processes) -> Callable[[], list[str | Failed]]:
    """`attempt` of each, in their order: this process begins when asked, others at once."""
    drawn = processes.begin(attempt, drawings)
    return lambda: [Failed(failure_of(svg)) if isinstance(svg, Exception) else svg for svg in drawn()]


def _inline(svg: str) -> str:
    """The <svg> element alone, with tips as titles: without the ids of groups, which would repeat on a page, and with
    no more than hundredths of a point."""
    element = svg[svg.index("<svg") :]
    element = WITHOUT.sub("", element)
    element = re.sub(rf'<g id="{TIP}([^"]*)"([^>]*)>', r"<g\2><title>\1</title>", element)
    element = re.sub(r'<g id="[^"]*"', "<g", element)
    element = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), element)
    element = re.sub(r"\s*\n\s*", "\n", element)
    return _with_classes(element).replace(INK, "currentColor").replace("'DejaVu Sans'", FALLBACK_FONTS)


def _with_classes(element: str) -> str:
    """The same, with styles that many shapes have said once. A class is named by what it says: it is the same one in
    all plots of a page."""
    uses = collections.Counter(re.findall(r' style="([^"]*)"', element))
    rules = []
    for style, count in uses.items():
        if count >= REPEATED:
            name = f"p{hashlib.sha256(style.encode()).hexdigest()[:8]}"
            rules.append(f".{name}{{{style}}}")
            element = element.replace(f' style="{style}"', f' class="{name}"')
    begin = element.index(">") + 1
    return f"{element[:begin]}<style>{''.join(rules)}</style>{element[begin:]}" if rules else element
