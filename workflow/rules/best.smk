"""results/{machine}/best/{model}.json: the search for a model's best case, step by step, and the program that runs it.

Each step reads the records that the last one asked for, and asks for the next ones: as ordinary files of ordinary cases.
"""


checkpoint best_step:
    input:
        best_inputs,
        spec=model_spec,
    output:
        "results/{machine}/best/{model}/step{step}.json",
    log:
        "results/log/{machine}/best/{model}/step{step}.log",
    wildcard_constraints:
        step=r"\d+",
    params:
        description=model_description,
        config=json.dumps(STUDY.config),
    message:
        "Choose what is measured next of {wildcards.model}: step {wildcards.step}"
    shell:
        "inferprof best results --config {params.config:q} --machine {wildcards.machine} --model {wildcards.model} "
        "--out {output:q} > {log:q} 2>&1"


rule best_of_model:
    input:
        best_end,
    output:
        trail="results/{machine}/best/{model}.json",
        program="results/{machine}/best/{model}.py",
    log:
        "results/log/{machine}/best/{model}.log",
    params:
        config=json.dumps(STUDY.config),
    message:
        "Hand over the best case of {wildcards.model}"
    shell:
        "inferprof best results --config {params.config:q} --machine {wildcards.machine} --model {wildcards.model} "
        "--program {output.program:q} --out {output.trail:q} > {log:q} 2>&1"


rule best:
    input:
        on_every_machine(targets.best),
