"""results/{machine}/environment.json: what the machine is and what is installed on it."""


rule probe:
    output:
        "results/{machine}/environment.json",
    log:
        "results/log/{machine}/environment.log",
    message:
        "Probe this machine"
    shell:
        "inferprof probe --out {output:q} 2> {log:q}"
