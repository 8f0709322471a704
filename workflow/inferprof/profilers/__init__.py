"""The profilers: one module per tool, from its command line to its rows of the tidy table."""
