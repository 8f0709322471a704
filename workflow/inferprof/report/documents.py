"""The JSON files that a report reads: what is not as inferprof writes it is left out, and remembered."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import pandas as pd

from inferprof import documents, registry
from inferprof.case import EXCLUDED, Case
from inferprof.documents import Build, Cost, Diagnosis, Kind, Partition, Serving, Trail, Trtexec, Watched
from inferprof.documents.base import Outcome
from inferprof.errors import UserError
from inferprof.tables import records, schema

TORCH_ALONE = "torch alone runs {}, so that no ONNX graph is made"
TELL_FAILURES: tuple[Kind, ...] = ("build", "watched")
"""Kinds whose failures the report shows as they are; of others a failed one is missing, with its reason."""
OF_GRAPH: tuple[Kind, ...] = ("convert", "audit", "accuracy")


Content = TypeVar("Content")


@dataclass(frozen=True)
class Document(Generic[Content]):
    """A JSON file of the results: `file` is relative to the results folder; `content` is None where it is missing."""

    file: str
    content: Content | None
    why: str | None = None
    """Why nobody writes it; None where the study asks for it."""
    damage: str | None = None
    """What is wrong with the file, where it is there but can't be used."""
    failure: str | None = None
    """The stage that failed, and why: all that such a file holds."""

    @property
    def lacking(self) -> str:
        """Why there is no content."""
        return self.damage or self.failure or self.why or f"no {self.file}"


@dataclass(frozen=True)
class Engine:
    """What became of one engine build."""

    machine: str
    case: Case
    build: Document[Build]

    @property
    def key(self) -> records.Key:
        """Its machine and case."""
        return (self.machine, *self.case.path.parts)


@dataclass(frozen=True)
class Reader:
    """Reads the documents about the cases of `outcomes`; `damaged` and `failed` are those without content so far."""

    results: Path
    outcomes: pd.DataFrame
    damaged: list[Document[Any]] = field(default_factory=list)
    failed: list[Document[Any]] = field(default_factory=list)

    def read(self, path: Path, kind: Kind, why: str | None = None) -> Document[Any]:
        """A document, which may be missing or damaged."""
        name = path.relative_to(self.results).as_posix()
        try:
            content = documents.read(path, kind, self.results) if os.path.lexists(path) else None
        except UserError as error:
            return self._lost(path, error)
        reason = content.failure if isinstance(content, Outcome) and kind not in TELL_FAILURES else None
        if reason is None:
            return Document(name, content, why)
        document: Document[Any] = Document(name, None, failure=reason)
        self.failed.append(document)
        return document

    def tables(self) -> Iterator[pd.DataFrame]:
        """The profilers' tables of the cases that were to run, without single events."""
        for machine, case in self.planned():
            for path in sorted((self.results / machine / "table").glob(f"*/{case.path}.parquet")):
                try:
                    yield schema.read_earlier(path, events=False)
                except UserError as error:
                    self._lost(path, error)

    def _lost(self, path: Path, error: UserError) -> Document[Any]:
        """A file that can't be used, among `damaged`."""
        name = path.relative_to(self.results).as_posix()
        document: Document[Any] = Document(name, None, damage=str(error).replace(str(path), name))
        self.damaged.append(document)
        return document

    def of_graphs(self) -> dict[tuple[str, str, str], Document[Any]]:
        """(model, precision, kind) → what is known of each graph."""
        graphs = self._pairs()
        why = {graph: self._no_graph(graph[0]) or self._excluded(*graph) for graph in graphs}
        return {
            (*graph, kind): self.read(self._onnx(*graph, f"{kind}.json"), kind, why[graph])
            for graph in graphs
            for kind in OF_GRAPH
        }

    def partitions(self) -> dict[tuple[str, str], Document[Partition]]:
        """The partitions of the graphs of all cases that were asked for: those that an engine is built of."""
        paths = {graph: self._onnx(*graph, "partition.json") for graph in self._pairs()}
        return {graph: document for graph, path in paths.items() for document in self._there(path, "partition")}

    def costs(self) -> dict[tuple[str, str, str], Document[Cost]]:
        """The costs of the graphs of all cases; of those on a CPU nobody asks for them."""
        graphs = dict.fromkeys(
            zip(self.outcomes["model"], self.outcomes["precision"], self.outcomes["shape"], strict=True)
        )
        return {
            (model, precision, shape): self.read(self._onnx(model, precision, f"{shape}.cost.json"), "cost")
            for model, precision, shape in graphs
        }

    def profiled_runs(self) -> Iterable[tuple[str, str, Watched]]:
        """(machine, profiler, record) of the runs that were watched."""
        for machine, case in self.planned():
            folder = self.results / machine / "capture"
            for path in sorted(folder.glob(f"*/{case.path}.record.json")):
                if content := self.read(path, "watched").content:
                    yield machine, path.relative_to(folder).parts[0], content

    def second_clocks(self) -> Iterable[Document[Trtexec]]:
        """The second clocks of the cases that were to run."""
        for machine, case in self.planned():
            yield from self._there(self.results / machine / "trtexec" / f"{case.path}.json", "trtexec")

    def served(self) -> Iterable[Document[Serving]]:
        """What came of the cases that were put under load."""
        for machine, case in self.planned():
            for path in sorted((self.results / machine / "serving").glob(f"*/{case.path}.json")):
                yield from self._there(path, "serving")

    def searches(self, machine: str) -> Iterable[Document[Trail]]:
        """The searches for the best case of the study's models."""
        for model in dict.fromkeys(self.outcomes["model"]):
            yield from self._there(self.results / machine / "best" / f"{model}.json", "trail")

    def diagnoses(self) -> Iterable[tuple[tuple[str, ...], Document[Diagnosis]]]:
        """KEY and diagnosis of the cases that were to run."""
        for machine, case in self.planned():
            for document in self._there(self.results / machine / "diagnosis" / f"{case.path}.json", "diagnosis"):
                yield (machine, *case.path.parts), document

    def engines(self, machine: str) -> Iterable[Engine]:
        """The builds of this study's models, formats, shapes and variants, of this machine and ahead of time for
        others; the results folder may hold those of an earlier config."""
        asked = self.outcomes
        graphs, shapes = set(self._pairs()), set(zip(asked["model"], asked["shape"], strict=True))
        variants = set(asked["variant"])
        folders = [self.results / machine / "engine", *sorted(self.results.glob("aot-*/engine"))]
        for folder in folders:
            for path in sorted(folder.glob("*/*/*/*/*.build.json")):
                case = Case.from_path(path.relative_to(folder).as_posix())
                has_graph = (case.model, case.precision) in graphs
                if has_graph and (case.model, case.shape) in shapes and case.variant in variants:
                    yield Engine(folder.parent.name, case, self.read(path, "build"))

    def planned(self) -> list[tuple[str, Case]]:
        """(machine, case) of what was to run."""
        planned = self.outcomes.loc[self.outcomes["outcome"] != "refused", records.KEY]
        return [(machine, Case(*names)) for machine, *names in planned.itertuples(index=False, name=None)]

    def _pairs(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys(zip(self.outcomes["model"], self.outcomes["precision"], strict=True)))

    def _onnx(self, model: str, precision: str, rest: str) -> Path:
        return self.results / "onnx" / model / f"{precision}.{rest}"

    def _there(self, path: Path, kind: Kind) -> list[Document[Any]]:
        """The document, where it is there and not damaged."""
        document = self.read(path, kind)
        return [] if document.content is None else [document]

    def _excluded(self, model: str, precision: str) -> str | None:
        """Why nobody asks for a graph all of whose cases the config leaves out."""
        of_graph = (self.outcomes["model"] == model) & (self.outcomes["precision"] == precision)
        reasons = set(self.outcomes.loc[of_graph, "reason"].fillna("").astype(str))
        excluded = all(reason.startswith(EXCLUDED) for reason in reasons)
        return "; ".join(sorted(reasons)) if excluded else None

    def _no_graph(self, model: str) -> str | None:
        """Why there is no graph of a model, where none was made and no runtime was to run one, or none could."""
        cases = self.outcomes[self.outcomes["model"] == model]
        unplanned = cases[cases["outcome"].eq("failed") & ~cases["files"].astype(bool)]
        if len(unplanned):
            return str(unplanned["reason"].iloc[0])
        runs = set(cases.loc[cases["outcome"] != "refused", "backend"])
        torch = {backend.name for backend in registry.backends().values() if backend.artifact == "torch"}
        made = any((self.results / "onnx" / model).glob("*.convert.json"))
        alone = runs and runs <= torch and not made
        return TORCH_ALONE.format("this model") if alone else None
