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
    wildcard_constraints:
        backend="|".join(name for name, backend in BACKENDS.items() if backend.build),
    priority: studies.BEFORE_MEASURING
    threads: build_cores
    resources:
        **MEASURES,
    params:
        description=model_description,
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


# Nothing depends on it: what is not compiled by then, a measurement compiles itself.
rule compile:
    input:
        artifact=artifact,
        spec=model_spec,
        files=model_files,
    output:
        "results/{machine}/engine/{model}/{precision}/{backend}/{variant}/{shape}.build.json",
    log:
        "results/log/{machine}/engine/{model}/{precision}/{backend}/{variant}/{shape}.log",
    wildcard_constraints:
        backend="|".join(name for name in BACKENDS if not BACKENDS[name].build),
    priority: studies.BEFORE_MEASURING - 1
    # Its compiler has processes of its own; all the same, conversions that wait for cores would cost more.
    threads: 1
    params:
        description=model_description,
        options=run_flags,
        seed=STUDY.protocol["seed"],
    message:
        "Compile {wildcards.model} {wildcards.precision} {wildcards.variant} {wildcards.shape} with {wildcards.backend}"
    shell:
        "inferprof compile {wildcards.backend} {input.artifact:q} --spec {input.spec:q} --precision {wildcards.precision} "
        "--shape {wildcards.shape} --variant {wildcards.variant} {params.options} --seed {params.seed} "
        "--machine {wildcards.machine} --out {output:q} 2> {log:q}"
