"""models/{model}.yaml → results/onnx/{model}/{precision}.onnx, its audit, partition, cost and accuracy. Nothing here needs a GPU."""


rule export:
    input:
        spec=model_spec,
        files=model_files,
    output:
        onnx="results/onnx/{model}/fp32.onnx",
        facts="results/onnx/{model}/fp32.convert.json",
    log:
        "results/log/onnx/{model}/fp32.log",
    priority: studies.BEFORE_MEASURING
    params:
        description=model_description,
    message:
        "Export {wildcards.model} to ONNX"
    shell:
        "inferprof export {input.spec:q} --out {output.onnx:q} 2> {log:q}"


rule quantize:
    input:
        onnx="results/onnx/{model}/fp32.onnx",
        spec=model_spec,
        files=model_files,
    output:
        onnx="results/onnx/{model}/{precision}.onnx",
        facts="results/onnx/{model}/{precision}.convert.json",
    log:
        "results/log/onnx/{model}/{precision}.log",
    wildcard_constraints:
        precision="|".join(name for name in registry.precisions() if name != "fp32"),
    priority: studies.BEFORE_MEASURING
    params:
        description=model_description,
        options=precision_flags,
    message:
        "Convert {wildcards.model} to {wildcards.precision}"
    shell:
        "inferprof quantize {wildcards.precision} {input.onnx:q} --spec {input.spec:q} {params.options} "
        "--out {output.onnx:q} 2> {log:q}"


rule audit:
    input:
        onnx="results/onnx/{model}/{precision}.onnx",
        spec=model_spec,
    output:
        "results/onnx/{model}/{precision}.audit.json",
    log:
        "results/log/onnx/{model}/{precision}.audit.log",
    priority: studies.BEFORE_MEASURING
    params:
        description=model_description,
        sizes=size_flags,
    message:
        "Audit the graph of {wildcards.model} in {wildcards.precision}"
    shell:
        "inferprof audit {input.onnx:q} --spec {input.spec:q} {params.sizes} --precision {wildcards.precision} "
        "--out {output:q} 2> {log:q}"


rule partition:
    input:
        onnx="results/onnx/{model}/{precision}.onnx",
        spec=model_spec,
    output:
        "results/onnx/{model}/{precision}.partition.json",
    log:
        "results/log/onnx/{model}/{precision}.partition.log",
    priority: studies.BEFORE_MEASURING - 2
    params:
        description=model_description,
        sizes=size_flags,
    message:
        "Ask TensorRT's parser what it takes of {wildcards.model} in {wildcards.precision}"
    shell:
        "inferprof partition {input.onnx:q} --spec {input.spec:q} {params.sizes} --out {output:q} 2> {log:q}"


rule cost:
    input:
        onnx="results/onnx/{model}/{precision}.onnx",
        spec=model_spec,
    output:
        "results/onnx/{model}/{precision}.{shape}.cost.json",
    log:
        "results/log/onnx/{model}/{precision}.{shape}.cost.log",
    priority: studies.BEFORE_MEASURING - 2
    params:
        description=model_description,
    message:
        "Count the FLOPs and bytes of {wildcards.model} in {wildcards.precision} at {wildcards.shape}"
    shell:
        "inferprof cost {input.onnx:q} --spec {input.spec:q} --shape {wildcards.shape} --out {output:q} 2> {log:q}"


rule expect:
    input:
        onnx=expected_of,
        spec=model_spec,
        files=model_files,
    output:
        "results/onnx/{model}/{precision}.{shape}.expected.npz",
    log:
        "results/log/onnx/{model}/{precision}.{shape}.expected.log",
    priority: studies.BEFORE_MEASURING
    params:
        description=model_description,
        seed=STUDY.protocol["seed"],
    message:
        "Compute what {wildcards.model} in {wildcards.precision} gives at {wildcards.shape}"
    shell:
        "inferprof expect {input.onnx:q} --spec {input.spec:q} --shape {wildcards.shape} --seed {params.seed} "
        "--out {output:q} 2> {log:q}"


rule expect_samples:
    input:
        onnx="results/onnx/{model}/fp32.onnx",
        spec=model_spec,
        files=model_files,
    output:
        # Kept: made anew for one format, it would be a reason to judge all others again.
        "results/onnx/{model}/fp32.samples.npz",
    log:
        "results/log/onnx/{model}/fp32.samples.log",
    priority: studies.BEFORE_MEASURING
    params:
        description=model_description,
        sizes=size_flags,
        samples=STUDY.protocol["accuracy_samples"],
        seed=STUDY.protocol["seed"],
    message:
        "Compute what {wildcards.model} in fp32 gives for {params.samples} samples"
    shell:
        "inferprof expect {input.onnx:q} --spec {input.spec:q} {params.sizes} --samples {params.samples} "
        "--seed {params.seed} --out {output:q} 2> {log:q}"


rule accuracy:
    input:
        reference="results/onnx/{model}/fp32.samples.npz",
        onnx="results/onnx/{model}/{precision}.onnx",
        spec=model_spec,
        files=model_files,
    output:
        "results/onnx/{model}/{precision}.accuracy.json",
    log:
        "results/log/onnx/{model}/{precision}.accuracy.log",
    priority: studies.BEFORE_MEASURING
    params:
        description=model_description,
        options=precision_flags,
        samples=STUDY.protocol["accuracy_samples"],
        seed=STUDY.protocol["seed"],
    message:
        "Compare {wildcards.model} in {wildcards.precision} with fp32"
    shell:
        "inferprof accuracy {wildcards.precision} {input.onnx:q} --reference {input.reference:q} --spec {input.spec:q} "
        "{params.options} --samples {params.samples} --seed {params.seed} --out {output:q} 2> {log:q}"


rule sensitivity:
    input:
        onnx="results/onnx/{model}/fp32.onnx",
        spec=model_spec,
        files=model_files,
    output:
        "results/onnx/{model}/{precision}.sensitivity.json",
    log:
        "results/log/onnx/{model}/{precision}.sensitivity.log",
    priority: studies.BEFORE_MEASURING
    params:
        description=model_description,
        options=precision_flags,
    message:
        "Rank the nodes of {wildcards.model} by what they lose in {wildcards.precision}"
    shell:
        "inferprof sensitivity {wildcards.precision} {input.onnx:q} --spec {input.spec:q} {params.options} "
        "--out {output:q} > {log:q} 2>&1"


rule sensitivities:
    input:
        targets.sensitivities(STUDY),


rule onnx:
    input:
        targets.onnx(STUDY),
