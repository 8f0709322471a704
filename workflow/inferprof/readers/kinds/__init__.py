"""The kinds of foreign files: one module per kind, with what recognises it and what reads it."""
