"""Renders a report as one HTML page that needs nothing from outside."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from inferprof.report.model import Block, Card, Figure, Outline, Report, Table, Text, Widget

if TYPE_CHECKING:
    import markupsafe

SCRIPTS = ("page.js", "tables.js", "plots.js", "timeline.js", "compare.js", "search.js")
"""In the order in which they run."""
CODE = re.compile(r"`([^`]+)`")
RESULTS = "../.."
"""From results/reports/{study}/REPORT.html to results/."""


def render(report: Report) -> str:
    """The page. All text is escaped; of the figures, the SVG is ours and goes in as it is, as the script does."""
    import jinja2

    loader = jinja2.PackageLoader("inferprof.report")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.tests["table"] = lambda block: isinstance(block, Table) and not block.csv_only
    environment.tests["csv_only"] = lambda block: isinstance(block, Table) and block.csv_only
    environment.tests["figure"] = lambda block: isinstance(block, Figure)
    environment.tests["card"] = lambda block: isinstance(block, Card)
    environment.tests["widget"] = lambda block: isinstance(block, Widget)
    environment.tests["outline"] = lambda block: isinstance(block, Outline)
    environment.tests["item"] = lambda block: isinstance(block, Text) and block.role == "item"
    environment.filters["anchor"] = anchor
    environment.filters["runs"] = runs
    environment.filters["link"] = link
    environment.filters["prose"] = prose
    environment.filters["hashed"] = hashed
    environment.filters["inert"] = inert
    environment.filters["plot_id"] = plot_id
    script = "".join(loader.get_source(environment, name)[0] for name in SCRIPTS)
    return environment.get_template("report.html.j2").render(report=report, script=script)


def hashed(script: str) -> str:
    """What the page's policy calls its own script by: no other may run, and nothing may be loaded."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def inert(data: str) -> str:
    """JSON in which nothing is markup."""
    return data.replace("<", "\\u003c")


def anchor(title: str) -> str:
    """A heading as the id of its section."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def runs(blocks: tuple[Block, ...]) -> list[list[Block]]:
    """The blocks with neighbouring list items put together, so that they become one list, and so cards; the plots of
    cards are left out."""
    titles = {block.title for block in blocks if isinstance(block, Card)}
    apart = (block for block in blocks if not (isinstance(block, Figure) and block.card in titles))
    grouped: list[list[Block]] = []
    for block in apart:
        kind = _joined(block)
        if kind and grouped and _joined(grouped[-1][0]) == kind:
            grouped[-1].append(block)
        else:
            grouped.append([block])
    return grouped


def _joined(block: Block) -> str:
    """What neighbours are put together as; empty of what stands alone."""
    if isinstance(block, Card):
        return "card"
    return "item" if isinstance(block, Text) and block.role == "item" else ""


def plot_id(file: str) -> str:
    """`plots/waterfall-vit.svg` as the id of the figure."""
    return f"plot-{anchor(PurePosixPath(file).stem)}"


def prose(text: str) -> markupsafe.Markup:
    """Text escaped, with what stands between backticks as code."""
    import markupsafe

    return markupsafe.Markup(CODE.sub(r"<code>\1</code>", str(markupsafe.escape(text))))


def link(file: str) -> str:
    """Where a path under results/ lies from the page's point of view; of `r{0,1}.json` the folder."""
    return f"{RESULTS}/{file.rpartition('/')[0]}/" if "{" in file else f"{RESULTS}/{file}"
