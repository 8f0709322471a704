"""results/{machine}/: environment.json, what the machine is; bandwidth.json, how fast its link and memory are."""


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
