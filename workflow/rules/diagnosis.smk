"""results/{machine}/diagnosis/{case}.json: why a case is as fast as it is, by all that was measured of it."""


# All cases of a model in one job: each is diagnosed among the others, so that one new record is news to all of them.
rule diagnose:
    input:
        diagnosis_inputs,
    output:
        directory("results/{machine}/diagnosis/{model}"),
    log:
        "results/log/{machine}/diagnosis/{model}.log",
    params:
        refused=refused_cases,
        checks=registry.sources("inferprof.diagnosis"),
        thresholds=targets.flags(STUDY.config["thresholds"]),
    message:
        "Diagnose the cases of {wildcards.model}"
    shell:
        "inferprof diagnose results --machine {wildcards.machine} --model {wildcards.model} {params.thresholds} "
        "--out {output:q} > {log:q} 2>&1"


rule diagnoses:
    input:
        on_every_machine(targets.diagnoses),
