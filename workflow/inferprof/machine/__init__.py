"""The machine in hand: its GPU, versions and tools, what its datasheet promises, and where a record is from."""
