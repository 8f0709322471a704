"""What a server that forms batches does under load, by its latency over the batch: policies, theory, simulation."""
