"""The runtimes: one module per family. A module-level Backend constant is all that is needed to add one."""
