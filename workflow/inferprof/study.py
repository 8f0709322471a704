"""A study: the config checked, times the machine, gives the cases: each is run or refused with a reason."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inferprof import cluster, planning, registry
from inferprof import config as configs
from inferprof.backends import refusals
from inferprof.case import EXCLUDED, OF_DUELS, PARALLEL, Case, OptionValue, Shape, Variant, outcomes_csv
from inferprof.cluster import Request
from inferprof.errors import UserError, for_each
from inferprof.machine import hardware
from inferprof.machine.hardware import Machine
from inferprof.model.model_spec import ModelSpec, discover, is_unsized
from inferprof.planning import Planned
from inferprof.precisions import unconvertible

FIRST, EARLY = 2_000_000, 5_000_000
"""Job priorities of the measurements of the first answer, and of what is said before all is done."""
AFTER_FIRST_ROUND = 999_999
"""Job priority of what decides about further rounds: below `priority` of each case in the first."""
BEFORE_MEASURING = 10_000_000
"""Job priority of what can run side by side: a measurement takes all cores, so it had better come after."""


@dataclass(frozen=True, eq=False)
class Study:
    """A checked study on a machine. Everything the Snakefile asks for is asked of this.

    It is equal to itself alone, so that answers which are asked for once per job can be kept.
    """

    config: Mapping[str, Any]
    machine: Machine
    known_models: Mapping[str, Path]
    """Every model of the models folder, also those that the study leaves out."""
    models: Mapping[str, ModelSpec]
    precisions: Mapping[str, Mapping[str, OptionValue]]
    """Precision → its options: the format's defaults under those of the config."""
    variants: Mapping[str, Variant]
    shapes: Mapping[str, Sequence[Shape]]
    """Model → its shapes, with all symbols resolved."""
    planned: Sequence[Planned]
    broken: Mapping[str, UserError]
    """Model of the study → what is wrong with its files, so that nothing can be planned of it: its cases failed."""
    probed: bool = True
    """Whether it is known what the machine is. Where it is not, there are no cases yet."""

    @property
    def name(self) -> str:
        """The study's name: its folder under results/reports/."""
        return str(self.config["study"])

    @property
    def folder(self) -> str:
        """Where the report goes, under results/reports/: a folder of its own for each of several machines."""
        return f"{self.name}/{self.machine.slug}" if len(self.config.get("machines", ())) > 1 else self.name

    @property
    def protocol(self) -> Mapping[str, Any]:
        """How measurements are taken, defaults filled in."""
        return {**configs.PROTOCOL, **self.config.get("protocol", {})}

    @property
    def best(self) -> Mapping[str, Any]:
        """What a search for the best case is asked for, defaults filled in."""
        asked = self.config["best"].get("models", self.models)
        return {**configs.BEST, **self.config["best"], "models": [name for name in asked if name in self.models]}

    @property
    def target(self) -> list[tuple[int, int]]:
        """The compute capabilities to build engines for ahead of time."""
        parts = [text.split(".") for text in self.config["target"]]
        return [(int(major), int(minor)) for major, minor in parts]

    @property
    def rounds(self) -> range:
        """The rounds of each case: fewer where there is no GPU."""
        return range(self.protocol["cpu_rounds" if self.machine.gpu is None else "rounds"])

    @property
    def refines(self) -> bool:
        """Whether the first round decides what else is done: selection.csv."""
        repeats = self.config["repeat"] != "all" and len(self.rounds) > 1
        return repeats or (self.config["captures"] != "all" and bool(self.captures()))

    def brief(self, round_: int) -> bool:
        """Whether a round is a brief pass: the first of several, where there is a GPU, or one of a duel."""
        several = self.machine.gpu is not None and len(self.rounds) > 1
        return round_ >= OF_DUELS or (round_ == 0 and several)

    def only(self, round_: int) -> str | None:
        """The one boundary that a round of a duel measures."""
        return str(self.best["boundary"]) if round_ >= OF_DUELS else None

    @functools.cached_property
    def first_cases(self) -> frozenset[Case]:
        """Those of the first answer: the first model in its first format, variant and shape, in each runtime that
        loads its graph as it is; where none does, in the first that there is."""
        cases = self.cases()
        first = cases[0] if cases else None
        alike = [case for case in cases if first and replace(case, backend=first.backend) == first]
        at_once = [case for case in alike if registry.backends()[case.backend].artifact == "onnx"]
        return frozenset(at_once or alike[:1])

    def speaks(self, name: str, case: Case) -> bool:
        """Whether a profiler that watches a case speaks for it: of several that trace the same, one does; all of a
        case over several GPUs, of which only Kineto tells the sizes of messages."""
        tracing = [tool for tool in registry.tracers() if tool in self.config["profilers"]]
        first = next((tool for tool in tracing if self._refuses_profiler(tool, case) is None), name)
        return name not in tracing or name == first or PARALLEL in self.variant(case.variant).options

    def precision_options(self, precision: str) -> Mapping[str, OptionValue]:
        """The options of a number format, also of one that the study leaves out."""
        return self.precisions.get(precision, registry.precisions()[precision].options)

    def sizes_from(self, model: str) -> Shape | None:
        """The first shape of a model whose description lacks sizes, which it takes them from; else None."""
        return self.shapes[model][0] if model in self.shapes and is_unsized(self.known_models[model]) else None

    def variant(self, name: str) -> Variant:
        """A variant of the config, or one that is named by its options. Raises UserError for another name."""
        return self.variants.get(name) or Variant.read(name)

    def plan(self, case: Case, variant: Variant) -> Planned:
        """What becomes of a case, also of one that the study leaves out."""
        return planning.planned(case, self.models[case.model], variant, self.config["exclude"], self.machine)

    def watching(self, case: Case) -> list[str]:
        """The profilers of the study that watch a case and speak for it."""
        names: list[str] = self.config["profilers"]
        return [n for n in names if self._refuses_profiler(n, case) is None and self.speaks(n, case)]

    def cases(self) -> list[Case]:
        """The cases that run."""
        return [planned.case for planned in self.planned if planned.outcome == "run"]

    def onnx(self) -> list[tuple[str, str]]:
        """(model, precision) of every ONNX file: what can be converted, whether or not it can run here.

        Not where every case of it is excluded, nor an engine for another GPU asked for.
        """
        planned = {(p.case.model, p.case.precision) for p in self.planned}
        wanted = {(p.case.model, p.case.precision) for p in self.planned if not p.reason.startswith(EXCLUDED)}
        wanted |= {(case.model, case.precision) for _, case in self.ahead_of_time()}
        return [pair for pair in self._convertible() if pair in wanted or pair not in planned]

    def _convertible(self) -> list[tuple[str, str]]:
        """(model, precision) of what has an ONNX file in that format."""
        return [
            (model, precision)
            for model, precision in itertools.product(self.models, self.precisions)
            if self.models[model].exported
            and unconvertible(self.models[model], registry.precisions()[precision]) is None
        ]

    def ahead_of_time(self) -> list[tuple[str, Case]]:
        """(`aot-sm120`, case) of the engines for GPUs that need not be in this machine."""
        backends = [
            b.name for b in registry.backends().values() if b.ahead_of_time and b.name in self.config["backends"]
        ]
        variant = next(iter(self.variants))
        cases = [
            Case(model, precision, backend, variant, self.shapes[model][-1].label)
            for model, precision in self._convertible()
            for backend in backends
        ]
        built = [(aot_machine(capability), case) for capability in self.target for case in cases]
        exclude = self.config["exclude"]
        return [(to, case) for to, case in built if not planning.excluded(case, self.models[case.model], to, exclude)]

    def captures(self) -> list[tuple[str, Case]]:
        """(profiler, case) of what is profiled: every case that runs, with each profiler that the machine has."""
        return [
            (name, case)
            for name in self.config["profilers"]
            for case in self.cases()
            if self._refuses_profiler(name, case) is None
        ]

    def refused_profilers(self) -> dict[str, str]:
        """Profiler → the reason, for those that can watch none of the cases."""
        reasons = {
            name: {self._refuses_profiler(name, case) for case in self.cases()} for name in self.config["profilers"]
        }
        return {
            name: "; ".join(sorted(r for r in refusals if r)) or "no case runs"
            for name, refusals in reasons.items()
            if None not in refusals
        }

    def _refuses_profiler(self, name: str, case: Case) -> str | None:
        """Why a profiler does not watch a case: its own reason, or that nobody tells it where to look."""
        profiler = registry.profilers()[name]
        if reason := self._excludes_profiler(name, case) or refusals.of(name, profiler.refuses, case, self.machine):
            return reason
        chosen = [before for before in profiler.after if before in self.config["profilers"]]
        reasons = [self._refuses_profiler(before, case) for before in chosen]
        if not profiler.after or None in reasons:
            return None
        if not chosen:
            return f"{name}: {' or '.join(profiler.after)} tells it where to look; put one into `profilers` too"
        return f"{name}: runs after {' or '.join(chosen)}, refused: {'; '.join(filter(None, reasons))}"

    def _excludes_profiler(self, name: str, case: Case) -> str | None:
        """Why the config does not want a profiler to watch a case; of a model that it leaves out it says nothing."""
        spec = self.models.get(case.model)
        return planning.excluded(case, spec, self.machine.slug, self.config["exclude"], name) if spec else None

    def before(self, name: str, case: Case) -> str | None:
        """The profiler whose table tells another one where to look in a case; None for one that watches everything.

        Of a case that the study leaves out it is the first that could.
        """
        after = registry.profilers()[name].after
        chosen = (
            profiler
            for profiler in after
            if profiler in self.config["profilers"] and not self._refuses_profiler(profiler, case)
        )
        return next(chosen, after[0] if after else None)


def from_config(config: Mapping[str, Any], models_folder: Path, results: Path) -> list[Study]:
    """The study of a config: on the machine in hand, or on each of those that the config names.

    Raises UserError also where results cannot be written.
    """
    check_writable(results)
    label = configs.with_defaults(config)["machine"]
    labels = cluster.requests(config.get("machines", ()))
    if labels and label != "auto":
        raise UserError(f"config: machine: {label} and machines: {', '.join(labels)}; give one of the two keys")
    if not labels:
        return [plan(config, models_folder, hardware.detect(None if label == "auto" else str(label)))]
    return [_plan_elsewhere(config, models_folder, request, results) for request in labels.values()]


def _plan_elsewhere(config: Mapping[str, Any], models_folder: Path, request: Request, results: Path) -> Study:
    """The study on a machine that its probe described; without cases as long as there is no probe."""
    label = request.label
    path = results / label / "environment.json"
    if not path.exists():
        return replace(plan(config, models_folder, Machine(gpu=None, label=label)), planned=(), probed=False)
    return plan(config, models_folder, replace(hardware.read_probe(path, label), hosts=request.nodes))


def check_writable(results: Path) -> None:
    """Raise UserError unless files can be made in the folder, or in the one that it will be made in."""
    folder = results if results.exists() else results.absolute().parent
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise UserError(
            f"{folder} is not a folder that can be written to; make it writable, or run from another folder"
        )


def plan(config: Mapping[str, Any], models_folder: Path, machine: Machine) -> Study:
    """Check a config and make the study. Raises UserError, in one line, for the first thing that is wrong in it."""
    config = configs.with_defaults(config)
    known_models = discover(models_folder, config["models"])
    models, broken = configs.models(config["models"], known_models)
    precisions = configs.precisions(config["precisions"])
    variants = configs.variants(config["variants"])
    configs.check_names("backends", config["backends"], registry.backends())
    configs.check_names("profilers", config["profilers"], registry.profilers())
    configs.check_baseline(config["baseline"], variants)
    names_of: dict[str, Iterable[str]] = {"model": known_models, "variant": variants}
    names_of |= {"precision": registry.precisions(), "backend": registry.backends(), "profiler": registry.profilers()}
    configs.check_exclude(config["exclude"], names_of)
    if not broken:  # a shape may be for one of these
        configs.check_shapes(models, config["shapes"])
    configs.check_asked("answer", config["answer"], config["shapes"])
    configs.check_asked("best", config["best"], config["shapes"])
    configs.check_names("models in best:", config["best"].get("models", ()), config["models"])
    models = {name: configs.sized(spec, config["shapes"]) for name, spec in models.items()}
    shapes = for_each("models", models, lambda name: configs.shapes(models[name], config["shapes"]))
    every = shapes | {name: list(map(Shape.parse, config["shapes"])) for name in broken}

    def planned(case: Case) -> Planned:
        rules = (variants[case.variant], config["exclude"], machine)
        if why := broken.get(case.model):
            return planning.failed(case, known_models[case.model], *rules, str(why))
        return planning.planned(case, models[case.model], *rules)

    cases = planning.matrix(config["models"], precisions, config["backends"], variants, every)
    cached = [name for name, spec in models.items() if spec.kv_cache]
    configs.serving(config["serving"], shapes, cached, broken)
    return Study(
        config, machine, known_models, models, precisions, variants, shapes, [planned(case) for case in cases], broken
    )


def aot_machine(capability: tuple[int, int]) -> str:
    """(12, 0) → `aot-sm120`, the folder of engines that were compiled ahead of time."""
    return f"aot-sm{capability[0]}{capability[1]}"


def aot_capability(machine: str) -> tuple[int, int] | None:
    """`aot-sm120` → (12, 0); None for a machine that is one."""
    match = re.fullmatch(r"aot-sm(\d+)(\d)", machine)
    return (int(match[1]), int(match[2])) if match else None


def cases_csv(study: Study) -> str:
    """cases.csv, in the study's order."""
    return outcomes_csv(
        study.machine.slug, ((planned.case, planned.outcome, planned.reason) for planned in study.planned)
    )


def fingerprint(study: Study) -> str:
    """A digest of all that `inferprof cases` writes of a study: it follows from the config, but also from the models'
    descriptions, the machine and what is installed."""
    listed = json.dumps([cases_csv(study), study.refused_profilers()])
    return hashlib.sha256(listed.encode()).hexdigest()


def priority(case: Case, round_: int, seed: int, first: Iterable[Case] = ()) -> int:
    """Job priority that runs whole rounds one after another, and the cases of a round in seeded random order.

    Snakemake takes the highest priority first, so round 0 gets the largest numbers, and in it the cases of the first
    answer.
    """
    if round_ == 0 and case in first:
        return FIRST
    digest = hashlib.sha256(f"{seed} {round_} {case}".encode()).digest()
    return (OF_DUELS - round_ % OF_DUELS) * 1000 + int.from_bytes(digest[:4], "big") % 1000
