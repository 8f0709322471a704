"""results/{machine}/trtexec/{case}.json: trtexec as a second clock on TensorRT's engines, where the machine has one."""


rule second_clock:
    input:
        engine="results/{machine}/engine/{model}/{precision}/{backend}/{variant}/{shape}.engine",
        facts="results/{machine}/engine/{model}/{precision}/{backend}/{variant}/{shape}.build.json",
        record="results/{machine}/benchmark/{model}/{precision}/{backend}/{variant}/{shape}/r0.json",
        spec=model_spec,
    output:
        "results/{machine}/trtexec/{model}/{precision}/{backend}/{variant}/{shape}.json",
    log:
        "results/log/{machine}/trtexec/{model}/{precision}/{backend}/{variant}/{shape}.log",
    wildcard_constraints:
        backend="tensorrt",
    threads: all_cores
    resources:
        **MEASURES,
    params:
        description=model_description,
    message:
        "Measure {wildcards.model} {wildcards.precision} {wildcards.variant} {wildcards.shape} with trtexec"
    shell:
        "inferprof trtexec {input.engine:q} --spec {input.spec:q} --record {input.record:q} --out {output:q} "
        "> {log:q} 2>&1"


rule trtexec:
    input:
        on_every_machine(targets.second_clocks),
