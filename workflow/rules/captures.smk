"""results/{machine}/capture/{profiler}/{case}.*: the same run under a profiler, and its rows of the tidy table."""

import functools

# Commands are put together when a job runs: `profiler` is the last one of the loop by then, so they have it from params.
for profiler in registry.profilers().values():

    rule:
        name:
            f"capture_{profiler.name}"
        input:
            artifact=artifact,
            spec=model_spec,
            files=model_files,
            timeline=timeline(profiler),
            tuned=tuned(profiled=True),
        output:
            capture=f"results/{{machine}}/capture/{profiler.name}/{{model}}/{{precision}}/{{backend}}/{{variant}}/{{shape}}{profiler.suffix}",
            record=f"results/{{machine}}/capture/{profiler.name}/{{model}}/{{precision}}/{{backend}}/{{variant}}/{{shape}}.record.json",
        log:
            f"results/log/{{machine}}/capture/{profiler.name}/{{model}}/{{precision}}/{{backend}}/{{variant}}/{{shape}}.log",
        threads: all_cores
        resources:
            **MEASURES_A_CASE,
        params:
            description=model_description,
            profiler=profiler.name,
            options=profiled_flags(profiler),
        message:
            f"Capture {{wildcards.model}} {{wildcards.precision}} {{wildcards.backend}} with {profiler.name}"
        shell:
            "inferprof capture {params.profiler} --timeline {input.timeline:q} --out {output.capture:q} --record {output.record:q} -- inferprof run {wildcards.backend} {input.artifact:q} --spec {input.spec:q} --precision {wildcards.precision} --shape {wildcards.shape} --variant {wildcards.variant} {params.options} --tuned {input.tuned:q} --machine {wildcards.machine} --out {output.record:q} 2> {log:q}"

    rule:
        name:
            f"table_{profiler.name}"
        input:
            f"results/{{machine}}/capture/{profiler.name}/{{model}}/{{precision}}/{{backend}}/{{variant}}/{{shape}}{profiler.suffix}",
        output:
            f"results/{{machine}}/table/{profiler.name}/{{model}}/{{precision}}/{{backend}}/{{variant}}/{{shape}}.parquet",
        log:
            f"results/log/{{machine}}/table/{profiler.name}/{{model}}/{{precision}}/{{backend}}/{{variant}}/{{shape}}.log",
        params:
            profiler=profiler.name,
        message:
            f"Read what {profiler.name} saw of {{wildcards.model}} {{wildcards.precision}} {{wildcards.backend}}"
        shell:
            "inferprof table {params.profiler} {input:q} --machine {wildcards.machine} --out {output:q} 2> {log:q}"

    rule:
        name:
            profiler.name
        input:
            on_every_machine(
                functools.partial(targets.captures, profiler=profiler.name)
            ),
        localrule: True


rule tables:
    input:
        on_every_machine(targets.tables),
