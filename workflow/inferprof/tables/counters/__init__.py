"""What counters saw inside kernels: what bounds a kernel, and what is wrong in it."""
