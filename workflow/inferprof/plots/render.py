"""Draws a plot to SVG and PNG: the same bytes for the same frame."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from inferprof.plots.style import INK, STYLE
from inferprof.plugins import Plot

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

PNG_DPI = 150
TIP = "tip:"
"""Begins the gid of an artist whose rest is a tooltip on the page: `artist.set_gid(tip(...))`."""
FALLBACK_FONTS = "'DejaVu Sans', Verdana, sans-serif"
"""Text stays text, so that it can be read aloud and found; Verdana is as wide as the font of the layout."""


WITHOUT = re.compile(r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>|<!--.*?-->", re.DOTALL)
"""What no page needs: it has the one style itself."""


def lacks(plot: Plot, frame: pd.DataFrame) -> str | None:
    """Why a plot cannot be drawn of a frame, or None."""
    for column, count in plot.needs.items():
        found = frame[column].dropna().nunique()
        if found == 0:
            return f"{column} was not measured"
        if found < count:
            return f"it needs {count} different values of {column}, and there is {found}"
    return None


def render(plot: Plot, frame: pd.DataFrame, png: Path) -> str:
    """Write the PNG on white; return the SVG, whose text and axes take the colour of the page around it."""
    return written(plot.draw, frame, png)


def written(draw: Callable[[pd.DataFrame], Figure], frame: pd.DataFrame, png: Path) -> str:
    """The same of what is no Plot."""
    import matplotlib

    with matplotlib.rc_context(dict(STYLE)):
        figure = draw(frame)
        figure.savefig(png, dpi=PNG_DPI, facecolor="white", metadata={"Software": None})
        svg = io.StringIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return _inline(svg.getvalue())


def tip(*parts: str) -> str:
    """The gid of an artist that tells `parts`, a line each, when it is pointed at."""
    return TIP + "\n".join(parts)


def _inline(svg: str) -> str:
    """The <svg> element alone, with tips as titles: without the ids of groups, which would repeat on a page, and with
    no more than hundredths of a point."""
    element = svg[svg.index("<svg") :]
    element = WITHOUT.sub("", element)
    element = re.sub(rf'<g id="{TIP}([^"]*)"([^>]*)>', r"<g\2><title>\1</title>", element)
    element = re.sub(r'<g id="[^"]*"', "<g", element)
    element = re.sub(r"(\d\.\d\d)\d+", r"\1", element)
    element = re.sub(r"\s*\n\s*", "\n", element)
    return element.replace(INK, "currentColor").replace("'DejaVu Sans'", FALLBACK_FONTS)
