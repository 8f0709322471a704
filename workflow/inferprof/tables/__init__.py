"""The tidy table: its schema, metrics and records, and what is derived from them, a package for each subject."""
