"""results/reports/{study}/: cases.csv, REPORT.txt and .html, plots/, traces/ and csv/; results/REPORT.txt is the one in use.

Of several machines each has these in a folder of its own below, and the report above it compares them.
"""


rule cases:
    output:
        cases="results/reports/{folder}/cases.csv",
        config="results/reports/{folder}/config.json",
        profilers="results/reports/{folder}/profilers.json",
    log:
        "results/log/reports/{folder}/cases.log",
    priority: studies.BEFORE_MEASURING
    params:
        config=json.dumps(STUDY.config),
        machine=slug,
        # They follow from more than the config: sizes of the models, what is installed.
        listed=fingerprint,
    message:
        "List the cases of the study"
    shell:
        "inferprof cases --config {params.config:q} --machine {params.machine} --for-report --out {output.cases:q} 2> {log:q}"


# After one round of each case: which of them have further rounds and captures.
checkpoint select:
    input:
        selection_inputs,
        cases=rules.cases.output.cases,
    output:
        selection="results/reports/{folder}/selection.csv",
    log:
        "results/log/reports/{folder}/selection.log",
    # What broke before is no input, but tried again first.
    priority: studies.AFTER_FIRST_ROUND
    threads: cores_of_report
    params:
        study="{folder}",
        machine=slug,
        baseline=STUDY.config["baseline"],
        # What else it reads of the config. As an input, config.json would hide from a dry run what is chosen by now.
        by=json.dumps([STUDY.config["answer"], STUDY.config["thresholds"]]),
    message:
        "Choose the cases that get further rounds and captures"
    shell:
        "inferprof select results --study {params.study} --machine {params.machine} --baseline {params.baseline} "
        "--out {output.selection:q} > {log:q} 2>&1"


rule report_so_far:
    input:
        so_far_inputs,
        cases=ancient(rules.cases.output.cases),
    output:
        "results/reports/{folder}/REPORT.{part}.txt",
    log:
        "results/log/reports/{folder}/{part}.log",
    priority: studies.EARLY
    threads: cores_of_report
    params:
        study="{folder}",
        machine=slug,
        baseline=STUDY.config["baseline"],
    message:
        "Write what is known so far: {output}"
    shell:
        "inferprof report results --study {params.study} --machine {params.machine} --baseline {params.baseline} "
        "--so-far {wildcards.part} > {log:q} 2>&1"


rule write_report:
    input:
        report_inputs,
        listed=rules.cases.output,
    output:
        text="results/reports/{folder}/REPORT.txt",
        html=shown("results/reports/{folder}/REPORT.html", "{folder}"),
        plots=shown_files(
            "results/reports/{folder}/plots", "{folder}", "{plot,[^-]+}-{subject}.svg"
        ),
        tables=shown_files("results/reports/{folder}/csv", "{folder}", "{table}.csv"),
        traces=directory("results/reports/{folder}/traces"),
    log:
        "results/log/reports/{folder}/report.log",
    threads: cores_of_report
    params:
        study="{folder}",
        machine=slug,
        baseline=STUDY.config["baseline"],
        shown=shown_besides,
    message:
        "Write the report"
    shell:
        "inferprof report results --study {params.study} --machine {params.machine} --baseline {params.baseline} "
        "--processes {threads} 2> {log:q}"


if len(STUDIES) > 1:

    rule compare_machines:
        input:
            on_every_machine(targets.report),
        output:
            text=f"results/reports/{STUDY.name}/REPORT.txt",
            html=shown(f"results/reports/{STUDY.name}/REPORT.html", STUDY.name),
            tables=shown_files(
                f"results/reports/{STUDY.name}/csv", STUDY.name, "{table}.csv"
            ),
        log:
            f"results/log/reports/{STUDY.name}/machines.log",
        params:
            study=STUDY.name,
            machines=" ".join(BY_MACHINE),
            baseline=STUDY.config["baseline"],
        message:
            "Compare the machines"
        shell:
            "inferprof report results --study {params.study} --machine {params.machines} --baseline {params.baseline} 2> {log:q}"


rule report_in_use:
    input:
        report=f"results/reports/{STUDY.name}/REPORT.txt",
        so_far=[file for study in STUDIES for file in reports_so_far(study)],
        # Asked for by the reports, too, but there only once it is known which cases go on.
        prepared=on_every_machine(targets.prepared),
    output:
        shown("results/REPORT.txt", STUDY.name),
    log:
        "results/log/reports/in_use.log",
    message:
        "Put the report at results/REPORT.txt"
    shell:
        "cp {input.report:q} {output:q} 2> {log:q}"


# What is known by now, also beside the Snakemake that runs the study: it asks for nothing that is not there yet.
rule report:
    log:
        "results/log/reports/now.log",
    localrule: True
    params:
        study=STUDY.name,
        machines=" ".join(BY_MACHINE),
        baseline=STUDY.config["baseline"],
    message:
        "Write what is known by now"
    shell:
        "inferprof report results --study {params.study} --machine {params.machines} --baseline {params.baseline} --so-far now "
        "2> {log:q}"


# The first answer alone, which `make report` begins with.
rule first:
    input:
        [f"results/reports/{study.folder}/REPORT.first.txt" for study in STUDIES],
