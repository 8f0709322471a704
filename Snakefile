"""The study as a workflow: models → ONNX → number formats → engines → measurements → tables → report.

snakemake --cores 1 results/REPORT.txt       the whole study of config.yaml
snakemake --cores 1 onnx                     one stage: onnx engines benchmarks trtexec nsys kineto tables report
snakemake --cores 1 results/…/b8.engine      one file, also one outside of the config's matrix
"""

from snakemake.utils import min_version

min_version("9.0")


configfile: "config.yaml"


report: "workflow/report/workflow.rst"


# What `make image` builds; used by `--sdm apptainer`. Inside the image itself nothing needs it.
container: "docker://inferprof:latest"


include: "workflow/rules/common.smk"
include: "workflow/rules/environment.smk"
include: "workflow/rules/onnx.smk"
include: "workflow/rules/engines.smk"
include: "workflow/rules/benchmarks.smk"
include: "workflow/rules/trtexec.smk"
include: "workflow/rules/captures.smk"
include: "workflow/rules/report.smk"


localrules:
    all,
    onnx,
    engines,
    benchmarks,
    trtexec,
    tables,
    report,


rule all:
    default_target: True
    input:
        "results/REPORT.txt",


onerror:
    shell(PARTIAL_REPORT)
