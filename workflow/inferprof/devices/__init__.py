"""What backends run on: memory, copies and clocks of the CPU and of CUDA."""
