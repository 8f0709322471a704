"""results/{machine}/diagnosis/{case}.json: why a case is as fast as it is, by all that was measured of it."""


rule diagnose:
    input:
        diagnosis_inputs,
    output:
        "results/{machine}/diagnosis/{model}/{precision}/{backend}/{variant}/{shape}.json",
    log:
        "results/log/{machine}/diagnosis/{model}/{precision}/{backend}/{variant}/{shape}.log",
    params:
        case=lambda wildcards: Case.from_wildcards(wildcards),
        thresholds=targets.flags(STUDY.config["thresholds"]),
    message:
        "Diagnose {wildcards.model} {wildcards.precision} {wildcards.backend} {wildcards.variant} {wildcards.shape}"
    shell:
        "inferprof diagnose results --machine {wildcards.machine} --case {params.case} {params.thresholds} "
        "--out {output:q} > {log:q} 2>&1"


rule diagnoses:
    input:
        on_every_machine(targets.diagnoses),
