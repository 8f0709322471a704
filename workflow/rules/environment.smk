"""results/{machine}/: environment.json, what it is; bandwidth.json, ceilings.json and links.json, how fast it is."""


rule probe:
    output:
        "results/{machine}/environment.json",
    log:
        "results/log/{machine}/environment.log",
    resources:
        **MEASURES,
    message:
        "Probe {wildcards.machine}"
    shell:
        "inferprof probe --label {wildcards.machine} --out {output:q} 2> {log:q}"


rule bandwidth:
    output:
        "results/{machine}/bandwidth.json",
    log:
        "results/log/{machine}/bandwidth.log",
    threads: all_cores
    resources:
        **MEASURES,
    message:
        "Measure the link and the memory of the GPU"
    shell:
        "inferprof bandwidth --out {output:q} 2> {log:q}"


rule ceilings:
    output:
        "results/{machine}/ceilings.json",
    log:
        "results/log/{machine}/ceilings.log",
    threads: all_cores
    resources:
        **MEASURES,
    message:
        "Measure how fast the machine computes and reads at best"
    shell:
        "inferprof ceilings --out {output:q} 2> {log:q}"


rule links:
    output:
        "results/{machine}/links.json",
    log:
        "results/log/{machine}/links.log",
    threads: all_cores
    resources:
        **MEASURES,
    message:
        "Measure the links between the GPUs"
    shell:
        "inferprof links --out {output:q} > {log:q} 2>&1"


rule probes:
    input:
        targets.of_all(targets.probe, STUDIES),
