"""The files that a study asks for, by stage: the right-hand sides of the workflow's stage targets."""

from __future__ import annotations

import functools
import json
import math
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
import yaml

from inferprof import config as configs
from inferprof import registry, sensitivity, trtexec
from inferprof.best import space
from inferprof.case import LAST_DUELS, OF_DUELS, PARALLEL, Case, OptionValue, Shape
from inferprof.documents.serving import ServingPolicy
from inferprof.errors import UserError, meant, unknown
from inferprof.files import sha256
from inferprof.queueing.policy import ANSWERING, ANSWERING_OPTIONS
from inferprof.selection import Selection
from inferprof.study import Study

SWITCHES: Final = ("models", "search", "client_core")
"""Keys of a policy that are no flag with a value."""
PARSER: Final = "tensorrt-rtx"
"""The package whose parser answers without a GPU."""


def of_all(files: Callable[[Study], list[str]], studies: Iterable[Study]) -> list[str]:
    """What a stage asks for on every machine of a study, each file once."""
    return list(dict.fromkeys(file for study in studies for file in files(study)))


def not_made(target: str, stages: Collection[str], study: Study) -> UserError:
    """What to say of a target that is no stage and that no rule makes."""
    if "/" not in target:
        return unknown("targets", [target], stages)
    names: dict[str, Iterable[str]] = {
        **{"models": study.known_models, "variants": study.variants},
        **{"formats": registry.precisions(), "runtimes": registry.backends()},
    }
    existing = {name for each in names.values() for name in each}
    strange = [part for part in (entry.partition(".")[0] for entry in Path(target).parts) if part not in existing]
    listed = "; ".join(f"{kind} {', '.join(each)}" for kind, each in names.items())
    return UserError(
        f"no step makes {target}: it is no file of results/ by names that exist ({listed}){meant(strange, existing)}"
    )


def probe(study: Study) -> list[str]:
    """What the machine is, as it says itself."""
    return [f"results/{study.machine.slug}/environment.json"]


def report(study: Study) -> list[str]:
    """The report on one machine."""
    return [f"results/reports/{study.folder}/REPORT.txt"]


def onnx(study: Study) -> list[str]:
    """The ONNX files."""
    return [f"results/onnx/{model}/{precision}.onnx" for model, precision in study.onnx()]


def sensitivities(study: Study) -> list[str]:
    """Which nodes lose the accuracy, of each format in which they can be left out one by one."""
    formats = registry.precisions()
    pairs = [
        (model, precision) for model, precision in study.onnx() if sensitivity.refusal(formats[precision]) is None
    ]
    return [f"results/onnx/{model}/{precision}.sensitivity.json" for model, precision in pairs]


def engines(study: Study) -> list[str]:
    """The engines of the cases that run, and those for other GPUs."""
    own = [(study.machine.slug, case) for case in study.cases() if has_engine(case)]
    return [f"results/{machine}/engine/{case}.engine" for machine, case in own + study.ahead_of_time()]


def records(study: Study, selection: Selection | None = None, model: str | None = None) -> list[str]:
    """The measurements: every case that runs, in every round; of a selection, and what is there already."""
    chosen = selection and study.config["repeat"] != "all"
    return [
        file
        for round_ in study.rounds
        for case in study.cases()
        if model in (None, case.model)
        and (file := _record(study, case, round_))
        and (not chosen or not round_ or (selection and case in selection.repeated) or Path(file).exists())
    ]


def _record(study: Study, case: Case, round_: int = 0) -> str:
    return f"results/{study.machine.slug}/benchmark/{case}/r{round_}.json"


def first_records(study: Study) -> list[str]:
    """The measurements of the first answer."""
    return [_record(study, case) for case in study.cases() if case in study.first_cases]


def once(study: Study) -> list[str]:
    """What decides about further rounds and captures: a round of each case, and what is known of the graphs.

    What broke in a run before is tried again by whoever else wants it, and does not keep the rest from going on.
    """
    broken = {graph for graph in study.onnx() if _broke(f"results/onnx/{'/'.join(graph)}.onnx")}
    cases = [case for case in study.cases() if (case.model, case.precision) not in broken]
    files = [*(_record(study, case) for case in cases), *compiled(study), *_of_graphs(study, broken)]
    return [file for file in files if not _broke(file)]


def _broke(product: str) -> bool:
    """Whether there is the log of a job, and not what it was to make."""
    path = Path(product)
    return not path.exists() and Path("results/log", *path.parts[1:]).with_suffix(".log").exists()


def second_clocks(study: Study) -> list[str]:
    """What trtexec says of TensorRT's engines, where the machine has one."""
    if trtexec.NAME not in study.machine.tools:
        return []
    cases = [case for case in study.cases() if case.backend == trtexec.BACKEND]
    return [f"results/{study.machine.slug}/trtexec/{case}.json" for case in cases]


def policies(study: Study) -> dict[str, ServingPolicy]:
    """The policies under which cases are put under load, by name."""
    cached = [name for name, spec in study.models.items() if spec.kv_cache]
    return configs.serving(study.config["serving"], study.shapes, cached, study.broken)


def served(study: Study) -> list[tuple[ServingPolicy, Case]]:
    """Each policy with the cases of its largest batch that run; such a case stands for those of smaller ones."""
    return [
        (policy, case) for policy in policies(study).values() for case in study.cases() if _by(policy, study, case)
    ]


def _by(policy: ServingPolicy, study: Study, case: Case) -> bool:
    fits = case.model in (policy.models or study.models) and configs.is_served(policy, Shape.parse(case.shape))
    options = study.variants[case.variant].options
    return fits and (not policy.generates or (case.backend == ANSWERING and options.keys() <= ANSWERING_OPTIONS))


def batches_up_to(study: Study, case: Case) -> list[Case]:
    """The cases that run and differ from a case in a smaller batch alone, and the case itself; by batch."""
    own = Shape.parse(case.shape)
    sizes = {each: Shape.parse(each.shape) for each in study.cases() if replace(each, shape=case.shape) == case}
    alike = [each for each, shape in sizes.items() if shape.sizes[1:] == own.sizes[1:] and shape.batch <= own.batch]
    return sorted(alike, key=lambda each: sizes[each].batch)


def serving(study: Study, model: str | None = None) -> list[str]:
    """What came of the cases under load."""
    return [
        f"results/{study.machine.slug}/serving/{policy.name}/{case}.json"
        for policy, case in served(study)
        if model in (None, case.model)
    ]


def trace_files(policy: ServingPolicy) -> list[str]:
    """The file of moments that a policy is sent, if it is sent one."""
    kind, _, file = policy.arrivals.partition(":")
    return [file] if kind == "trace" else []


def serving_flags(policy: ServingPolicy) -> str:
    """A policy as flags of `inferprof serve`."""
    given = {name: value for name, value in msgspec.to_builtins(policy).items() if name not in SWITCHES}
    words = [["--no-search"]] * (not policy.search) + [["--client-core"]] * policy.client_core
    for name, value in given.items():
        flag = f"--{name.replace('_', '-')}"
        words.append([flag, *map(str, value)] if isinstance(value, list | tuple) else [flag, str(value)])
    return shlex.join(word for flag in words for word in flag)


def captures(study: Study, profiler: str) -> list[str]:
    """What one profiler saw."""
    suffix = registry.profilers()[profiler].suffix
    cases = [case for name, case in study.captures() if name == profiler]
    return [f"results/{study.machine.slug}/capture/{profiler}/{case}{suffix}" for case in cases]


def tables(study: Study, selection: Selection | None = None, model: str | None = None) -> list[str]:
    """The tables of all cases, or of a selection, by the profilers that speak for them; and what is there already."""
    winners = selection if study.config["captures"] != "all" else None
    chosen = winners.captured if winners else frozenset(study.cases())
    return [
        file
        for name, case in study.captures()
        if model in (None, case.model)
        and (file := f"results/{study.machine.slug}/table/{name}/{case}.parquet")
        and ((case in chosen and study.speaks(name, case)) or Path(file).exists())
    ]


def diagnoses(study: Study) -> list[str]:
    """Why the cases of each model that run are as fast as they are: a folder per model, a file per case."""
    models = dict.fromkeys(case.model for case in study.cases())
    return [f"results/{study.machine.slug}/diagnosis/{model}" for model in models]


def diagnosis_inputs(study: Study, model: str, selection: Selection | None = None) -> list[str]:
    """What the diagnosis of a model's cases is made from: its machine, and all of the model's graphs and cases."""
    machine = f"results/{study.machine.slug}"
    of_graphs = [file for file in (*costs(study), *partitions(study)) if file.startswith(f"results/onnx/{model}/")]
    return [
        f"{machine}/environment.json",
        *(f"{machine}/{what}.json" for what in _measured(study)),
        *of_graphs,
        *records(study, selection, model),
        *tables(study, selection, model),
        *serving(study, model),
    ]


def best(study: Study) -> list[str]:
    """The searches for the best case of each model. Raises UserError for one that cannot begin."""
    for model in study.best["models"]:
        space.check(study, model)
    return _trails(study, study.best["models"])


def _trails(study: Study, models: Iterable[str]) -> list[str]:
    return [f"results/{study.machine.slug}/best/{model}.json" for model in models]


def searched(study: Study) -> dict[str, str]:
    """The searches that the report shows: a digest of each file that is there.

    They are no inputs of it: Snakemake would search again for a report, where a key of the config has changed.
    """
    return {file: sha256(Path(file)) for file in _trails(study, study.models) if Path(file).exists()}


def costs(study: Study) -> list[str]:
    """What each graph computes and moves at each shape that a case runs at."""
    exported = [case for case in study.cases() if study.models[case.model].exported]
    at = dict.fromkeys((case.model, case.precision, case.shape) for case in exported)
    return [f"results/onnx/{model}/{precision}.{shape}.cost.json" for model, precision, shape in at]


def partitions(study: Study) -> list[str]:
    """What TensorRT would take of each graph that a case builds an engine of, where its parser is installed."""
    if PARSER not in study.machine.packages:
        return []
    built = [*study.cases(), *(case for _, case in study.ahead_of_time())]
    graphs = dict.fromkeys((case.model, case.precision) for case in built if has_engine(case))
    return [f"results/onnx/{model}/{precision}.partition.json" for model, precision in graphs]


def prepared(study: Study) -> list[str]:
    """What the report asks for that nothing measured decides: made before, beside the conversions."""
    return [*costs(study), *partitions(study), *(_facts(engine) for engine in engines(study))]


def _facts(engine: str) -> str:
    return engine.removesuffix(".engine") + ".build.json"


def report_inputs(study: Study, selection: Selection | None = None) -> list[str]:
    """All that the report is made from, apart from cases.csv."""
    return [
        *probe(study),
        *(f"results/{study.machine.slug}/{what}.json" for what in _measured(study)),
        *_of_graphs(study),
        *prepared(study),
        *compiled(study),
        *records(study, selection),
        *second_clocks(study),
        *serving(study),
        *tables(study, selection),
        *diagnoses(study),
    ]


def compiled(study: Study) -> list[str]:
    """What says how long cases took to compile ahead of their measurements; on machines of a cluster they do not."""
    if study.config.get("machines"):
        return []
    backends, variants = registry.backends(), study.variants
    cases = [case for case in study.cases() if backends[case.backend].compiles_ahead(variants[case.variant])]
    return [f"results/{study.machine.slug}/engine/{case}.build.json" for case in cases]


def _of_graphs(study: Study, but_for: Collection[tuple[str, str]] = ()) -> list[str]:
    """What is known of each graph."""
    graphs = [
        f"results/onnx/{model}/{precision}" for model, precision in study.onnx() if (model, precision) not in but_for
    ]
    return [f"{graph}.{kind}.json" for graph in graphs for kind in ("convert", "audit", "accuracy")]


def flags(options: Mapping[str, OptionValue]) -> str:
    """Options as flags of the command line, quoted for a shell: `--set calibration=max`."""
    return " ".join(f"--set {shlex.quote(f'{name}={_scalar(value)}')}" for name, value in sorted(options.items()))


def protocol_flags(study: Study, round_: int) -> str:
    """The parts of the protocol that one run needs to know."""
    protocol, only = study.protocol, study.only(round_)
    flags = f"--budget {protocol['budget_s']} --interval {protocol['interval']} --seed {protocol['seed']}"
    chooses = OF_DUELS <= round_ < LAST_DUELS
    return flags + " --first-pass" * study.brief(round_) + f" --only {only}" * bool(only) + " --quiet-core" * chooses


def _scalar(value: OptionValue) -> str:
    """A value as the command line reads it back: YAML."""
    if isinstance(value, bool | list | dict):
        return json.dumps(value)
    return _in_yaml(value)


@functools.lru_cache(maxsize=None, typed=True)
def _in_yaml(value: str | float | None) -> str:
    """In quotes a text that YAML takes for something else, such as `yes`; a number with the point it asks for."""
    text: str = yaml.safe_dump([value], default_flow_style=True, width=math.inf, allow_unicode=True)
    return text[1:-2]


def _measured(study: Study) -> tuple[str, ...]:
    """What is measured of the machine itself."""
    if study.machine.gpu is None:
        return ("ceilings",)
    divided = any(PARALLEL in study.variant(case.variant).options for case in study.cases())
    return ("bandwidth", "ceilings", *(["links"] if divided and study.machine.gpus > 1 else []))


def has_engine(case: Case) -> bool:
    """Whether the backend of a case runs an engine."""
    return registry.backends()[case.backend].artifact == "engine"
