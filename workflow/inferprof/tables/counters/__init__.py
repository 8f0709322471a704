"""What counters saw inside kernels: readers of Nsight Compute, what bounds a kernel, and what is wrong in it."""
