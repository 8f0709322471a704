"""The study as a workflow: models → ONNX → number formats → engines → measurements → tables → report.

snakemake --cores 1 results/REPORT.txt       the whole study of config.yaml
snakemake --cores 1 onnx                     one stage: probes onnx sensitivities engines benchmarks trtexec serving nsys kineto tables diagnoses first
snakemake --cores 1 best                     the search for the best case of each model: docs/best.md
snakemake --cores 1 report                   what is known by now, also while the study runs
snakemake --cores 1 results/…/b8.engine      one file, also one outside of the config's matrix
"""

import sys
from pathlib import Path

from inferprof.errors import UserError
from inferprof.yaml_file import read_yaml
from snakemake.utils import min_version

min_version("9.0")

# Snakemake says of broken YAML neither file nor line. What --configfile names, it has read by now.
try:
    if Path("config.yaml").exists():
        read_yaml(Path("config.yaml"))
except UserError as error:
    print(f"inferprof: {error}", file=sys.stderr)
    sys.exit(2)


configfile: "config.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"


# Used by `--sdm apptainer`. Inside the image itself nothing needs it.
container: image


include: "workflow/rules/environment.smk"
include: "workflow/rules/onnx.smk"
include: "workflow/rules/engines.smk"
include: "workflow/rules/benchmarks.smk"
include: "workflow/rules/trtexec.smk"
include: "workflow/rules/serving.smk"
include: "workflow/rules/captures.smk"
include: "workflow/rules/diagnosis.smk"
include: "workflow/rules/best.smk"
include: "workflow/rules/report.smk"


localrules:
    all,
    probes,
    cases,
    report_in_use,
    onnx,
    sensitivities,
    engines,
    benchmarks,
    trtexec,
    serving,
    tables,
    diagnoses,
    best,
    first,


rule all:
    default_target: True
    input:
        "results/REPORT.txt",


if workflow.is_main_process:
    workflow.is_rule = is_stage


onstart:
    if workflow.is_main_process:
        say_broken()
    if only_reports():
        processes.end_with_jobs(workflow.persistence.unlock)
    # Jobs that run a Snakemake of their own hold no lock.
    elif workflow.is_main_process:
        processes.sign_lock(Path.cwd())
        for study in STUDIES:
            planning.keep_report(reports_of(study), study.planned)
        if not SUBMITS:
            processes.end_with_jobs(workflow.persistence.unlock)
        pace.follow(
            STUDY.machine.slug,
            lambda: [
                pace.kind(job.rule.name, job.wildcards_dict)
                for job in list(workflow.dag.needrun_jobs())
            ],
            outcomes.told,
        )


onsuccess:
    if workflow.is_main_process and not only_reports():
        say_ends()
        for job in workflow.dag.jobs:
            if job.rule.name == "serving":
                print(
                    *(f"{said_of_load(file)}\n" for file in job.input),
                    sep="",
                    end="",
                )
        for job in workflow.dag.jobs:
            if job.rule.name == "best_of_model":
                print(Path(job.log[0]).read_text().partition("\n")[0])
                print(
                    f"  as a program: {job.output.program}; each step: {job.output.trail}"
                )
        if {job.rule.name for job in workflow.dag.jobs} & REPORTING:
            print(
                *(path.read_text() for path in ANSWERS if path.exists()),
                sep="",
                end="",
            )


onerror:
    for command in PARTIAL_REPORTS:
        shell(command)
