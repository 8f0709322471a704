"""The study in hand, and the functions that say what a rule reads. What decides anything is in inferprof.study."""

import inspect
import json
import os
import re
import shlex
import sys
from pathlib import Path

from inferprof import (
    cluster,
    config as configs,
    documents,
    forked,
    outcomes,
    pace,
    planning,
    processes,
    registry,
    selection as selections,
    study as studies,
    targets,
)
from inferprof.best.rounds import given_up
from inferprof.case import SPELLED, Case
from inferprof.errors import UserError
from inferprof.files import read_json
from inferprof.yaml_file import read_yaml
from inferprof.model import model_files as model_files_of
from inferprof.ranks.world import World
from snakemake.persistence.file import FilePersistence


def give_up(reason):
    """End Snakemake in one line: what the user can mend."""
    print(f"inferprof: {reason}", file=sys.stderr)
    sys.exit(2)


def is_stage(name, is_rule=workflow.is_rule):
    """In the place of `workflow.is_rule`, which is asked of each target: end where it is no rule and no rule makes it.

    Snakemake says of such a target neither what there is nor what was meant.
    """
    # Not called `rule`, by which `snakemake --lint` would take this file for one of rules.
    stages = [step.name for step in workflow.rules if not step.has_wildcards()]
    if is_rule(name) and (name in stages or name not in workflow.dag_settings.targets):
        return True  # any rule may be forced, or be the last
    file = os.path.relpath(name) if name and not os.path.isabs(name) else name
    if not any(step.is_producer(file) for step in workflow.rules):
        give_up(targets.not_made(name, stages, STUDY))
    return False


def keep_others_locks():
    """Have Snakemake remove its own locks alone where it ends, as it did before it had two kinds of persistence.

    Else a run with nothing to do takes away those of the run that works in this folder. --unlock still removes all.
    """

    def remove_own(persistence):
        for lock in persistence._lockfile.values():
            Path(lock).unlink(missing_ok=True)
        persistence._lockfile.clear()

    FilePersistence.cleanup_locks = FilePersistence._delete_locks
    FilePersistence._delete_locks = remove_own


keep_others_locks()

# Jobs are submitted, and this is the process that does it.
SUBMITS = (
    workflow.is_main_process
    and workflow.resource_settings.nodes is not None
    and workflow.resource_settings.cores is None
)

try:
    # One per machine: what does not depend on the machine is asked of the first.
    # Snakemake takes the last of two equal keys; this refuses them.
    for path in workflow.configfiles:
        read_yaml(Path(path))
    config = configs.as_in_a_file(config, workflow.config_settings.config)
    STUDIES = studies.from_config(config, Path("models"), Path("results"))
    BY_MACHINE = {study.machine.slug: study for study in STUDIES}
    REQUESTS = cluster.requests(
        config.get("machines", ()),
        {slug: study.machine.threads for slug, study in BY_MACHINE.items()},
    )
    if SUBMITS:
        cluster.check(REQUESTS.values())
    if workflow.is_main_process:
        planning.check_formats(
            STUDIES[0].name,
            STUDIES[0].models,
            STUDIES[0].precisions,
            Path("results/reports"),
        )
except UserError as error:
    give_up(error)

STUDY = STUDIES[0]
if workflow.is_main_process and not any(Path(".snakemake", "metadata").glob("*")):
    paths = {name: STUDY.known_models[name] for name in STUDY.models}
    for line in model_files_of.made_otherwise(paths, Path("results/onnx")):
        print(f"inferprof: {line}", file=sys.stderr)
BY_FOLDER = {study.folder: study for study in STUDIES}
BACKENDS = registry.backends()
PARTIAL_REPORTS = [
    f"inferprof report results --study {study.folder} --machine {study.machine.slug} "
    f"--baseline {STUDY.config['baseline']} --partial"
    for study in STUDIES
    if study.probed
]
# The rules whose jobs write the answers of a study.
REPORTING = {"report_so_far", "write_report", "compare_machines"}
ANSWERS = [Path(f"results/reports/{folder}/ANSWER.txt") for folder in BY_FOLDER]

# A job is one command. With exec it is Snakemake's own child, so that it ends when Snakemake is killed.
# The environment of this Snakemake has inferprof in it, also where nobody activated it.
# Ctrl-C is for Snakemake alone, which ends its jobs.
shell.prefix(
    ("" if SUBMITS else "trap '' INT; ")
    + f"PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH {forked.LIMIT}={STUDY.protocol['limit_s']} exec "
)

# Jobs of this host and outside of containers are forked from a server that has their libraries imported.
if (
    workflow.is_main_process
    and workflow.resource_settings.nodes is None
    and not workflow.deployment_settings.deployment_method
):
    forked.name_study(
        {case.backend for study in STUDIES if study.probed for case in study.cases()}
    )

# What torch.compile made in one round or capture, the next takes from here; a record says how much.
if workflow.is_main_process:
    os.environ.setdefault(
        "TORCHINDUCTOR_CACHE_DIR", str(Path(".snakemake", "inductor").absolute())
    )


wildcard_constraints:
    machine="[A-Za-z0-9][A-Za-z0-9_.-]*",
    model="|".join(STUDY.known_models),
    precision="|".join(registry.precisions()),
    backend="|".join(BACKENDS),
    variant="|".join([*STUDY.variants, SPELLED.pattern]),
    shape=r"b\d+(_[a-z0-9]+)?",
    round=r"\d+",
    folder="|".join(BY_FOLDER),
    part="first|once",
    policy="|".join(targets.policies(STUDY)) or "none",


def only_reports():
    """Whether nothing but the report by now is asked for, perhaps beside the Snakemake that runs the study."""
    jobs = workflow.dag.needrun_jobs(exclude_finished=False)
    return {job.rule.name for job in jobs} == {"report"}


def reports_of(study):
    """The folder of a study's report."""
    return Path("results/reports", study.folder)


def say_broken():
    """Say of which models nothing can be planned, and why."""
    for model, why in STUDY.broken.items():
        print(
            f"inferprof: the cases of {model} failed, those of other models go on: {why}",
            file=sys.stderr,
        )


def say_ends():
    """Say what became of what was asked for: of each file by name, of a stage's files where they failed."""
    for job in workflow.dag.targetjobs:
        said = outcomes.ends(job.output or job.input, named=bool(job.output))
        print(*(f"inferprof: {line}\n" for line in said), sep="", end="")
    print(
        *(
            f"inferprof: {why}\n"
            for study in STUDIES
            if (all_refused := planning.all_refused(study.planned))
            for why in (all_refused, planning.where_reports_are(reports_of(study)))
        ),
        sep="",
        end="",
    )


def said_of_load(file):
    """What came of a case under load, and where that is."""
    from inferprof.serving import (
        measure,
    )  # with NumPy and more, which no other use of this file needs

    return f"{measure.render(read_json(Path(file)))}\n  {file}"


def asked_often(function):
    """The function with its signature kept: Snakemake has inspect work it out at each call, a tenth of a plan's time."""
    function.__signature__ = inspect.signature(function)
    return function


def on_every_machine(files):
    """The input function of a stage: `files` of each machine of the study, which its probe must have described."""

    def asked(wildcards):
        if unknown := [study.machine.slug for study in STUDIES if not study.probed]:
            give_up(
                f"nothing is known of {', '.join(unknown)}, so that its cases can't be told: ask for the target probes first"
            )
        try:
            return targets.of_all(files, STUDIES)
        except UserError as error:
            give_up(error)

    return asked


def selection_of(study):
    """Which cases have further rounds and captures, once the first round is done; None where all have."""
    if not study.refines:
        return None
    written = Path(checkpoints.select.get(folder=study.folder).output.selection)
    try:
        return selections.read(written)
    except UserError as error:
        give_up(error)


def selection_inputs(wildcards):
    """What decides about further rounds and captures."""
    return targets.once(BY_FOLDER[wildcards.folder])


def so_far_inputs(wildcards):
    """What a report while the study runs is made from: the first answer, or a round of each case."""
    study = BY_FOLDER[wildcards.folder]
    if wildcards.part == "first":
        return targets.first_records(study)
    return f"results/reports/{study.folder}/{selections.NAME}"


def reports_so_far(study):
    """The reports of a study before it is done."""
    parts = ["first"] * (len(study.cases()) > 1) + ["once"] * study.refines
    return [f"results/reports/{study.folder}/REPORT.{part}.txt" for part in parts]


def report_inputs(wildcards):
    """What the report on one machine is made from."""
    study = BY_FOLDER[wildcards.folder]
    files = targets.report_inputs(study, selection_of(study))
    # Snakemake leaves a report alone that is newer than its inputs, also where one of them was moved away.
    if all(Path(report).exists() for report in targets.report(study)):
        workflow.dag.forcefiles.update(
            file for file in files if not Path(file).exists()
        )
    return files


def shown_besides(wildcards):
    """What a report shows that is no input of it: the searches for the best case; and the plug-ins that show it."""
    shown_by = registry.sources("inferprof.plots", "inferprof.report.sections")
    return [targets.searched(BY_FOLDER[wildcards.folder]), shown_by]


def diagnosis_inputs(wildcards):
    """What the diagnosis of a model's cases is made from."""
    study = BY_MACHINE[wildcards.machine]
    return targets.diagnosis_inputs(study, wildcards.model, selection_of(study))


def refused_cases(wildcards):
    """What the study refused of a model, which a diagnosis reads in cases.csv: that is listed first, by its priority.

    As an input, also an ancient one, it would hide other changes from Snakemake, or run each diagnosis again.
    """
    study = BY_MACHINE[wildcards.machine]
    return json.dumps(planning.refused(study.planned, study.variants, wildcards.model))


def trail_of(machine, model, step):
    """What a step of the search for a model's best case found, once it is done."""
    return documents.read(
        Path(
            checkpoints.best_step.get(machine=machine, model=model, step=step).output[0]
        ),
        "trail",
    )


def best_inputs(wildcards):
    """What a step of a search reads: what the last one asked for, but for jobs that broke."""
    step = int(wildcards.step)
    if step == 0:
        return f"results/{wildcards.machine}/environment.json"
    before = trail_of(wildcards.machine, wildcards.model, step - 1)
    return [file for file in before.asked if not given_up(file)]


def best_end(wildcards):
    """The last step of a search."""
    step = 0
    while trail_of(wildcards.machine, wildcards.model, step).ended is None:
        step += 1
    return f"results/{wildcards.machine}/best/{wildcards.model}/step{step}.json"


def fingerprint(wildcards):
    """What the cases of a study are, as a digest."""
    return studies.fingerprint(BY_FOLDER[wildcards.folder])


def slug(wildcards):
    """The machine that a report is about."""
    return BY_FOLDER[wildcards.folder].machine.slug


def all_cores(wildcards):
    """All cores of the machine: a job beside it would be measured too."""
    request = REQUESTS.get(wildcards.machine)
    return (request.cpus if request else workflow.resource_settings.cores) or 1


def build_cores(wildcards):
    """All cores for an engine of this machine, whose kernels are timed; of others nothing is, and they go side by side."""
    return 1 if studies.aot_capability(wildcards.machine) else all_cores(wildcards)


def cores_of_report(wildcards):
    """Its share of all cores, since the reports on several machines are written beside each other."""
    return max(1, (workflow.resource_settings.cores or 1) // len(STUDIES))


def asked_of_slurm(resource):
    """The function of a resource of a job that measures: none where the machine is not one of the config's."""

    def value(wildcards):
        request = REQUESTS.get(wildcards.machine)
        return request.resources[resource] if request else None

    return asked_often(value)


# Without --mem, which 0 leaves out, a job that has its node for itself gets all memory of it, too.
MEASURES = (
    {**{name: asked_of_slurm(name) for name in cluster.RESOURCES}, "mem_mb": 0}
    if REQUESTS
    else {"gpu": 1}
)


def hosts(wildcards):
    """Over how many nodes the job of a case is spread."""
    study = BY_MACHINE.get(wildcards.machine, STUDY)
    world = World.of(study.variant(wildcards.variant))
    return world.hosts(study.machine) if world else 1


def tasks(wildcards):
    """A task a node: the job's own process starts those on the others. With GPUs Slurm counts them by itself."""
    request = REQUESTS.get(wildcards.machine)
    return hosts(wildcards) if request and request.gres is None else None


MEASURES_A_CASE = {**MEASURES, **({"nodes": hosts, "tasks": tasks} if REQUESTS else {})}


def image(wildcards):
    """The container of a job, used by `--software-deployment-method apptainer`: the machine's own, or that of `make image`."""
    request = REQUESTS.get(wildcards.get("machine"))
    return (
        request.container
        if request and request.container
        else "docker://inferprof:latest"
    )


def model_spec(wildcards):
    """The file that describes the model. A rule that reads it has `model_description` among its params.

    Of a YAML file that, and not its time, says whether anything changed: comments are no input.
    """
    path = STUDY.known_models[wildcards.model]
    if why := STUDY.broken.get(wildcards.model):
        give_up(why)
    return path if path.suffix == ".onnx" else ancient(path)


def model_description(wildcards):
    """What the file says that describes the model, as a digest."""
    return model_files_of.description(STUDY.known_models[wildcards.model])


def model_files(wildcards):
    """What else the model is made of: the user's ONNX, sentences, arrays."""
    return model_files_of.all_of(STUDY.known_models[wildcards.model])


def expected_of(wildcards):
    """What says which outputs are right: the ONNX, or the torch model where there is none."""
    if not model_files_of.is_exported(STUDY.known_models[wildcards.model]):
        return model_spec(wildcards)
    return f"results/onnx/{wildcards.model}/{wildcards.precision}.onnx"


def artifact(wildcards):
    """What the backend loads: the ONNX, the engine, or for torch the model's description."""
    kind = BACKENDS[wildcards.backend].artifact
    if kind == "torch":
        return model_spec(wildcards)
    if kind == "onnx":
        return f"results/onnx/{wildcards.model}/{wildcards.precision}.onnx"
    return f"results/{wildcards.machine}/engine/{Case.from_wildcards(wildcards)}.engine"


def served(wildcards):
    """The cases that a server has a session for, by batch."""
    study = BY_MACHINE.get(wildcards.machine, STUDY)
    return targets.batches_up_to(study, Case.from_wildcards(wildcards))


def served_artifacts(wildcards):
    """What they load: a file for all, or an engine for each."""
    if BACKENDS[wildcards.backend].artifact != "engine":
        return artifact(wildcards)
    return [
        f"results/{wildcards.machine}/engine/{case}.engine"
        for case in served(wildcards)
    ]


def served_shapes(wildcards):
    """Their shapes."""
    return " ".join(case.shape for case in served(wildcards))


def trace_file(wildcards):
    """The moments at which requests come, where the policy has them in a file."""
    return targets.trace_files(targets.policies(STUDY)[wildcards.policy])


def policy_flags(wildcards):
    """The policy of serving, its load and its objective, as flags."""
    return targets.serving_flags(targets.policies(STUDY)[wildcards.policy])


def size_flags(wildcards):
    """The shape whose sizes a model takes that has none of its own, as a flag."""
    shape = STUDY.sizes_from(wildcards.model)
    return f"--shape {shape}" if shape else ""


def precision_flags(wildcards):
    """The options of the number format, and the shape whose sizes it is made at, as flags."""
    options = targets.flags(STUDY.precision_options(wildcards.precision))
    return " ".join(filter(None, (options, size_flags(wildcards))))


def variant_flags(wildcards):
    """The options of the variant, as flags."""
    return targets.flags(STUDY.variant(wildcards.variant).options)


def run_flags(wildcards):
    """The options of the variant as flags, and what a node must be that runs under a label of the config."""
    label = wildcards.machine
    probed = f" --probed results/{label}/environment.json" if label in REQUESTS else ""
    nodes = hosts(wildcards)
    return (
        variant_flags(wildcards) + probed + (f" --hosts {nodes}" if nodes > 1 else "")
    )


def protocol_flags(wildcards):
    """How a case is measured in its round, as flags."""
    study = BY_MACHINE.get(wildcards.machine, STUDY)
    return targets.protocol_flags(study, int(wildcards.round))


def profiled_flags(profiler):
    """The function of the flags of a run that a profiler watches: the variant's, the seed, and for how long."""
    return asked_often(
        lambda wildcards: f"{run_flags(wildcards)} --seed {STUDY.protocol['seed']} --profiled {profiler.iterations}"
    )


def tuned(profiled):
    """The input function of the record whose tuned configurations a run takes over; no file for one that has its own."""

    def record(wildcards):
        variant = STUDY.variant(wildcards.variant)
        case = Case.from_wildcards(wildcards).tuned_by(variant, profiled=profiled)
        return f"results/{wildcards.machine}/benchmark/{case}/r0.json" if case else []

    return asked_often(record)


def timeline(profiler):
    """The input function of the table that tells a profiler where to look; no file for one that watches everything."""

    def table(wildcards):
        case = Case.from_wildcards(wildcards)
        before = BY_MACHINE.get(wildcards.machine, STUDY).before(profiler.name, case)
        return (
            f"results/{wildcards.machine}/table/{before}/{case}.parquet"
            if before
            else []
        )

    return asked_often(table)


def target_flag(wildcards):
    """The GPU generation to build for, where it is not this machine's."""
    capability = studies.aot_capability(wildcards.machine)
    return f"--target {capability[0]}.{capability[1]}" if capability else ""


def round_priority(wildcards):
    """Whole rounds one after another, the cases of a round in seeded random order."""
    return studies.priority(
        Case.from_wildcards(wildcards),
        int(wildcards.round),
        STUDY.protocol["seed"],
        STUDY.first_cases,
    )


def shown(path, study):
    """A report that `snakemake --report` shows too."""
    kind = Path(path).suffix[1:]
    return report(
        path,
        caption=f"../report/{kind}.rst",
        category="Report",
        labels={"study": study, "format": kind},
    )


def shown_files(folder, study, pattern):
    """A folder whose files `snakemake --report` shows too, each labelled by the wildcards of the pattern."""
    kind = Path(folder).name
    return report(
        directory(folder),
        patterns=[pattern],
        caption=f"../report/{kind}.rst",
        category={"plots": "Plots", "csv": "Tables"}[kind],
        subcategory=study,
        labels={name: f"{{{name}}}" for name in re.findall(r"\{(\w+)", pattern)},
    )


for function in [value for value in globals().values() if inspect.isfunction(value)]:
    if list(inspect.signature(function).parameters) == ["wildcards"]:
        asked_often(function)
