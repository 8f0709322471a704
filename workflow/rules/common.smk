"""The study in hand, and the functions that say what a rule reads. What decides anything is in inferprof.study."""

import json
import sys
from pathlib import Path

from inferprof import registry, study as studies, targets
from inferprof.case import Case
from inferprof.errors import UserError

try:
    STUDY = studies.from_config(config, Path("models"), Path("results"))
except UserError as error:
    print(f"inferprof: {error}", file=sys.stderr)
    sys.exit(2)

MACHINE = STUDY.machine.slug
BACKENDS = registry.backends()
PARTIAL_REPORT = (
    f"inferprof report results --study {STUDY.name} --machine {MACHINE} "
    f"--baseline {STUDY.config['baseline']} --partial"
)

# A job is one command. With exec it is Snakemake's own child, so that it ends when Snakemake is killed.
shell.prefix("exec ")


wildcard_constraints:
    machine="[A-Za-z0-9][A-Za-z0-9_.-]*",
    model="|".join(STUDY.known_models),
    precision="|".join(registry.precisions()),
    backend="|".join(BACKENDS),
    variant="|".join(STUDY.variants),
    shape=r"b\d+(_[a-z0-9]+)?",
    round=r"\d+",


def model_spec(wildcards):
    """The file that describes the model."""
    return STUDY.known_models[wildcards.model]


def model_files(wildcards):
    """What else the model is made of: the user's ONNX, sentences, arrays."""
    return studies.model_files(STUDY.known_models[wildcards.model])


def artifact(wildcards):
    """What the backend loads: the ONNX, the engine, or for torch the model's description."""
    kind = BACKENDS[wildcards.backend].artifact
    if kind == "torch":
        return model_spec(wildcards)
    if kind == "onnx":
        return f"results/onnx/{wildcards.model}/{wildcards.precision}.onnx"
    return f"results/{wildcards.machine}/engine/{Case.from_wildcards(wildcards)}.engine"


def precision_flags(wildcards):
    """The options of the number format, as flags."""
    return targets.flags(STUDY.precision_options(wildcards.precision))


def variant_flags(wildcards):
    """The options of the variant, as flags."""
    return targets.flags(STUDY.variants[wildcards.variant].options)


def profiled_flags(wildcards):
    """The options of the variant and the seed of the inputs, as flags."""
    return f"{variant_flags(wildcards)} --seed {STUDY.protocol['seed']}"


def timeline(profiler):
    """The input function of the table that tells a profiler where to look; no file for one that watches everything."""

    def table(wildcards):
        case = Case.from_wildcards(wildcards)
        before = STUDY.before(profiler.name, case)
        return f"results/{wildcards.machine}/table/{before}/{case}.parquet" if before else []

    return table


def timeline_flag(profiler):
    """The same as a flag of a rule's command."""
    return "--timeline {input.timeline:q}" if profiler.after else ""


def target_flag(wildcards):
    """The GPU generation to build for, where it is not this machine's."""
    capability = studies.aot_capability(wildcards.machine)
    return f"--target {capability[0]}.{capability[1]}" if capability else ""


def round_priority(wildcards):
    """Whole rounds one after another, the cases of a round in seeded random order."""
    return studies.priority(
        Case.from_wildcards(wildcards), int(wildcards.round), STUDY.protocol["seed"]
    )
