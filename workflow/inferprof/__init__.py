"""inferprof: from models to a measured and explained report on GPU inference performance.

The command line is `inferprof.cli`; docs/architecture.md says which module does what.
"""
