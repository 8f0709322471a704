"""What becomes of a case before anything runs: it is run, or refused with the first reason against it."""

from __future__ import annotations

import contextlib
import csv
import fnmatch
import functools
import itertools
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from inferprof import config as configs
from inferprof import documents, registry, words
from inferprof.backends import refusals
from inferprof.case import BATCH, CASE_KEYS, EXCLUDED, Case, OptionValue, Shape, Variant
from inferprof.errors import UserError
from inferprof.files import unless_damaged
from inferprof.machine.hardware import Machine
from inferprof.model.model_spec import InputSpec, ModelSpec
from inferprof.plugins import Backend
from inferprof.precisions import unconvertible
from inferprof.yaml_file import read_yaml

GPU_OPTIONS = ("cuda_graph", "tf32")
EARLIER: Final = "REPORT.earlier.txt"
"""Beside a report of refusals alone: the report that it took the place of."""


@dataclass(frozen=True)
class Planned:
    """A case of the study and what becomes of it before anything runs."""

    case: Case
    outcome: Literal["run", "refused", "failed"]
    reason: str = ""


def planned(
    case: Case, spec: ModelSpec, variant: Variant, exclude: Iterable[configs.Exclusion], machine: Machine
) -> Planned:
    """The outcome of one case: the first reason against it refuses it."""
    backend: Backend = registry.backends()[case.backend]
    reason = refusals.first(
        excluded(case, spec, machine.slug, exclude),
        unconvertible(spec, registry.precisions()[case.precision]),
        _refuse_backend(case, spec, backend, variant),
        _refuse_variant(variant, machine),
        _refuse_options(spec, backend, variant, machine),
        spec.exceeds(Shape.parse(case.shape)),
        refusals.of(backend.name, backend.refuses, case, machine),
        refusals.of(backend.name, backend.refuses_variant, variant, case, machine),
    )
    return Planned(case, "refused", reason) if reason else Planned(case, "run")


def failed(
    case: Case, path: Path, variant: Variant, exclude: Iterable[configs.Exclusion], machine: Machine, reason: str
) -> Planned:
    """The same of a case of a model that nothing can be planned of: failed, if nothing else speaks against it."""
    try:
        otherwise = planned(case, _stand_in(path), variant, exclude, machine)
    except UserError:  # of an option that looks into the model
        otherwise = Planned(case, "run")
    return otherwise if otherwise.outcome == "refused" else Planned(case, "failed", reason)


@functools.cache
def _stand_in(path: Path) -> ModelSpec:
    """What is known of a model whose files are not as they should be: whether it is one of torch or an ONNX file."""
    of_onnx = path.suffix == ".onnx"
    if not of_onnx:
        with contextlib.suppress(UserError, TypeError, KeyError):
            of_onnx = read_yaml(path)["source"] == "onnx"
    inputs = (InputSpec("", "float32", (BATCH,)),)
    return ModelSpec(path.stem, path, "onnx" if of_onnx else "python", inputs, {"python": "", "onnx": path.name})


def matrix(
    models: Iterable[str],
    precisions: Iterable[str],
    backends: Iterable[str],
    variants: Iterable[str],
    shapes: Mapping[str, Sequence[Shape]],
) -> Iterator[Case]:
    """Every combination, in the order of the config."""
    for model, precision, backend, variant in itertools.product(models, precisions, backends, variants):
        for shape in shapes[model]:
            yield Case(model, precision, backend, variant, shape.label)


def excluded(
    case: Case, spec: ModelSpec, machine: str, exclude: Iterable[configs.Exclusion], profiler: str | None = None
) -> str | None:
    """The reason of the first `exclude:` entry that matches: all its keys, each by one of the names given for it.

    Entries with the key `profiler` are about that profiler watching the case, the others about the case itself.
    `machine` is a pattern of the slug. A shape is compared with all of the model's symbols: `b8` excludes b8_s128
    where 128 is the model's own size.
    """
    for entry in exclude:
        if profiler not in (configs.alternatives(entry, "profiler") or (None,)):
            continue
        given = {key: configs.alternatives(entry, key) for key in CASE_KEYS if key in entry}
        if "shape" in given:
            given["shape"] = tuple(str(spec.resolve(shape) or shape) for shape in map(Shape.parse, given["shape"]))
        same_case = all(getattr(case, key) in names for key, names in given.items())
        if same_case and any(fnmatch.fnmatch(machine, p) for p in configs.alternatives(entry, "machine") or "*"):
            return f"{EXCLUDED}: {entry['reason']}"
    return None


def all_refused(every: Sequence[Planned]) -> str | None:
    """Why a stage has nothing to do: all cases are refused; None where one runs, or none is planned."""
    if not every or any(case.outcome == "run" for case in every):
        return None
    return f"all {len(every)} cases are refused: {reasons_of(every)}"


def reasons_of(every: Iterable[Planned]) -> str:
    """Why cases are refused, the most frequent reason first, each with its count."""
    reasons = Counter(case.reason for case in every if case.outcome == "refused").most_common()
    return "; ".join(f"{reason} ({count})" for reason, count in reasons)


def keep_report(folder: Path, every: Sequence[Planned]) -> None:
    """Copy a study's report of cases that ran to EARLIER, before one of refusals alone takes its place."""
    report, listed = folder / "REPORT.txt", folder / "cases.csv"
    if all_refused(every) is None or not (report.exists() and listed.exists()):
        return
    with listed.open(encoding="utf-8", newline="") as file:
        ran = any(row.get("outcome") == "run" for row in csv.DictReader(file))
    if ran:
        shutil.copyfile(report, folder / EARLIER)


def check_formats(
    study: str, models: Iterable[str], precisions: Mapping[str, Mapping[str, OptionValue]], reports: Path
) -> None:
    """Raise UserError where another study, with its report in this folder, has a model in a format by other options.

    Their graphs have one path: each study would replace the other's, and what was measured of it.
    """
    for path in sorted([*reports.glob("*/config.json"), *reports.glob("*/*/config.json")]):
        other = path.relative_to(reports).parts[0]
        given = unless_damaged(documents.read, path, "config")
        if other == study or not given:
            continue
        try:
            theirs = configs.precisions(given.precisions)
        except UserError:  # by another version, or with a plug-in that is not here
            continue
        both = [model for model in models if model in given.models]
        for name in precisions if both else ():
            if name in theirs and theirs[name] != precisions[name]:
                ours, its = _options(precisions[name], theirs[name]), _options(theirs[name], precisions[name])
                raise UserError(
                    f"{name} of {words.some(both)} is made with {ours} here, and with {its} in the study {other}, "
                    f"whose results are in {reports.parent} too: each would replace the other's graph. Give the same "
                    f"options, run this study in a folder of its own, or give the other up: remove {reports / other}"
                )


def _options(options: Mapping[str, OptionValue], others: Mapping[str, OptionValue]) -> str:
    """Those that differ from the other's, as a config has them."""
    return ", ".join(f"{key}: {value}" for key, value in options.items() if others.get(key) != value)


def where_reports_are(folder: Path) -> str:
    """What to know of a report of refusals alone: what it took the place of."""
    kept = f"the one before it is {folder / EARLIER}" if (folder / EARLIER).exists() else "none was there before"
    others = f"those of other studies are in {folder.parent}"
    return f"{folder / 'REPORT.txt'} lists refusals alone; {kept}; {others}"


def refused(every: Sequence[Planned], variants: Mapping[str, Variant], model: str) -> list[str]:
    """What the machine refuses of a model's cases, with reasons and options: a diagnosis says it of them."""
    return [
        f"{planned.case}: {json.dumps(variants[planned.case.variant].options)}: {planned.reason}"
        for planned in every
        if planned.case.model == model and planned.outcome == "refused" and not planned.reason.startswith(EXCLUDED)
    ]


def _refuse_variant(variant: Variant, machine: Machine) -> str | None:
    """What speaks against the variant on this machine, whatever the backend is."""
    needed = [option for option in GPU_OPTIONS if variant.flag(option)]
    if machine.gpu is None and needed:
        return f"no GPU, which {', '.join(needed)} of variant {variant.name} needs"
    return None


def _refuse_options(spec: ModelSpec, backend: Backend, variant: Variant, machine: Machine) -> str | None:
    """What speaks against an option that the runtime is handed."""
    options = registry.runtime_options(backend.name)
    given = [options[name] for name in variant.options if name in options]
    return refusals.first(*(refusals.of(option.name, option.refuses, spec, machine) for option in given))


def _refuse_backend(case: Case, spec: ModelSpec, backend: Backend, variant: Variant) -> str | None:
    """What speaks against the backend whatever the machine is."""
    if foreign := sorted(variant.options.keys() - registry.options_of(backend).keys()):
        return f"{backend.name} has no option {', '.join(foreign)} (variant {variant.name})"
    if backend.artifact != "torch" and not spec.exported:
        return f"{backend.name} runs ONNX graphs and {spec.name} is not exported"
    if backend.artifact == "torch" and not spec.from_torch:
        return f"{backend.name} runs torch models and {spec.name} is an ONNX file"
    if backend.precisions is not None and case.precision not in backend.precisions:
        return (
            f"{backend.name} runs {', '.join(sorted(backend.precisions))}; {case.precision} lives in the ONNX graph"
        )
    return None
