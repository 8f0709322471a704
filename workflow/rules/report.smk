"""results/reports/{study}/: cases.csv, REPORT.txt, REPORT.html, plots/ and csv/; results/REPORT.txt is the one in use."""


rule cases:
    output:
        cases=f"results/reports/{STUDY.name}/cases.csv",
        profilers=f"results/reports/{STUDY.name}/profilers.json",
    log:
        f"results/log/reports/{STUDY.name}/cases.log",
    params:
        config=json.dumps(STUDY.config),
        machine=MACHINE,
    message:
        "List the cases of the study"
    shell:
        "inferprof cases --config {params.config:q} --out {output.cases:q} 2> {log:q}"


rule write_report:
    input:
        targets.report_inputs(STUDY),
        cases=rules.cases.output.cases,
        profilers=rules.cases.output.profilers,
    output:
        text=f"results/reports/{STUDY.name}/REPORT.txt",
        html=report(
            f"results/reports/{STUDY.name}/REPORT.html",
            caption="../report/html.rst",
            category="Report",
        ),
        plots=directory(f"results/reports/{STUDY.name}/plots"),
        tables=directory(f"results/reports/{STUDY.name}/csv"),
    log:
        f"results/log/reports/{STUDY.name}/report.log",
    params:
        study=STUDY.name,
        machine=MACHINE,
        baseline=STUDY.config["baseline"],
    message:
        "Write the report"
    shell:
        "inferprof report results --study {params.study} --machine {params.machine} --baseline {params.baseline} 2> {log:q}"


rule report_in_use:
    input:
        rules.write_report.output.text,
    output:
        report("results/REPORT.txt", caption="../report/report.rst", category="Report"),
    log:
        "results/log/reports/in_use.log",
    message:
        "Put the report at results/REPORT.txt"
    shell:
        "cp {input:q} {output:q} 2> {log:q}"


rule report:
    input:
        "results/REPORT.txt",
