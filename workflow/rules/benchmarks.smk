"""results/{machine}/benchmark/{case}/r{round}.json: the measurements. Never under a profiler."""


rule benchmark:
    input:
        artifact=artifact,
        reference="results/onnx/{model}/{precision}.{shape}.expected.npz",
        spec=model_spec,
        files=model_files,
        tuned=tuned(profiled=False),
    output:
        "results/{machine}/benchmark/{model}/{precision}/{backend}/{variant}/{shape}/r{round}.json",
    log:
        "results/log/{machine}/benchmark/{model}/{precision}/{backend}/{variant}/{shape}/r{round}.log",
    priority: round_priority
    threads: all_cores
    resources:
        **MEASURES_A_CASE,
    params:
        description=model_description,
        options=run_flags,
        protocol=protocol_flags,
    message:
        "Measure {wildcards.model} {wildcards.precision} {wildcards.backend} {wildcards.variant} {wildcards.shape}"
    shell:
        "inferprof run {wildcards.backend} {input.artifact:q} --spec {input.spec:q} "
        "--precision {wildcards.precision} --shape {wildcards.shape} --variant {wildcards.variant} {params.options} "
        "--reference {input.reference:q} --tuned {input.tuned:q} --machine {wildcards.machine} --round {wildcards.round} {params.protocol} --out {output:q} 2> {log:q}"


rule benchmarks:
    input:
        on_every_machine(targets.records),
