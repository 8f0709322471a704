"""A case over several GPUs: one process per rank, what they tell each other, and who waits for them."""
