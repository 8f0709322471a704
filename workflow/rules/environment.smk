"""results/{machine}/: environment.json, what it is; bandwidth.json and ceilings.json, how fast its link and GPU are."""


rule probe:
    output:
        "results/{machine}/environment.json",
    log:
        "results/log/{machine}/environment.log",
    message:
        "Probe this machine"
    shell:
        "inferprof probe --out {output:q} 2> {log:q}"


rule bandwidth:
    output:
        "results/{machine}/bandwidth.json",
    log:
        "results/log/{machine}/bandwidth.log",
    threads: workflow.cores
    resources:
        gpu=1,
    message:
        "Measure the link and the memory of the GPU"
    shell:
        "inferprof bandwidth --out {output:q} 2> {log:q}"


rule ceilings:
    output:
        "results/{machine}/ceilings.json",
    log:
        "results/log/{machine}/ceilings.log",
    threads: workflow.cores
    resources:
        gpu=1,
    message:
        "Measure the ceilings of the GPU"
    shell:
        "inferprof ceilings --out {output:q} 2> {log:q}"
