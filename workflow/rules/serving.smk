"""results/{machine}/serving/{policy}/{case}.json: a case of batches up to its own under load. Never under a profiler."""


rule serve:
    input:
        artifacts=served_artifacts,
        spec=model_spec,
        files=model_files,
        trace=trace_file,
    output:
        "results/{machine}/serving/{policy}/{model}/{precision}/{backend}/{variant}/{shape}.json",
    log:
        "results/log/{machine}/serving/{policy}/{model}/{precision}/{backend}/{variant}/{shape}.log",
    threads: all_cores
    resources:
        **MEASURES,
    params:
        description=model_description,
        shapes=served_shapes,
        options=run_flags,
        policy=policy_flags,
        seed=STUDY.protocol["seed"],
    message:
        "Serve {wildcards.model} {wildcards.precision} {wildcards.backend} {wildcards.variant} {wildcards.shape} by {wildcards.policy}"
    shell:
        "inferprof serve {wildcards.backend} {input.artifacts:q} --spec {input.spec:q} --precision {wildcards.precision} "
        "--shapes {params.shapes} --variant {wildcards.variant} {params.options} {params.policy} --seed {params.seed} "
        "--machine {wildcards.machine} --out {output:q} > {log:q} 2>&1"


rule serving:
    input:
        on_every_machine(targets.serving),
