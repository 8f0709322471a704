"""The tidy table: its schema and metrics, and what is derived from it."""
