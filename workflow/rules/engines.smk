"""results/onnx/{model}/{precision}.onnx → results/{machine}/engine/{case}.engine and .build.json."""


rule build:
    input:
        onnx="results/onnx/{model}/{precision}.onnx",
        spec=model_spec,
    output:
        engine="results/{machine}/engine/{model}/{precision}/{backend}/{variant}/{shape}.engine",
        facts="results/{machine}/engine/{model}/{precision}/{backend}/{variant}/{shape}.build.json",
    log:
        "results/log/{machine}/engine/{model}/{precision}/{backend}/{variant}/{shape}.log",
    priority: studies.BEFORE_MEASURING
    threads: build_cores
    resources:
        **MEASURES,
    params:
        options=variant_flags,
        target=target_flag,
    message:
        "Build a {wildcards.backend} engine: {wildcards.model} {wildcards.precision} {wildcards.shape}"
    shell:
        "inferprof build {wildcards.backend} {input.onnx:q} --spec {input.spec:q} --shape {wildcards.shape} "
        "--variant {wildcards.variant} {params.options} {params.target} --out {output.engine:q} 2> {log:q}"


rule engines:
    input:
        on_every_machine(targets.engines),
