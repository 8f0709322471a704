"""The report: REPORT.txt and REPORT.html from tables and records."""
