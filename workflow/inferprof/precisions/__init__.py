"""The number formats: one module each, ending in a Precision constant."""
