"""What a section of the report is, and which there are: the modules in sections/."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from inferprof import registry
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block

Builder = Callable[[Evidence], Iterable[Block]]


@dataclass(frozen=True)
class Section:
    """A section of the report: `build` gives what stands under its title. Without any block it is left out."""

    name: str
    title: str
    place: int
    """Where it stands among the sections: the smallest first."""
    build: Callable[[Evidence], Iterable[Block]]
    needs: tuple[str, ...] = ()
    """Fields of Evidence that must not be empty, else it is left out."""


def section(name: str, title: str, *, place: int, needs: tuple[str, ...] = ()) -> Callable[[Builder], Section]:
    """A decorator: the function that gives the blocks, as a Section."""
    return lambda build: Section(name, title, place, build, needs)


def sections() -> dict[str, Section]:
    """The sections of the report, by name."""
    return registry.constants("inferprof.report.sections", Section)
