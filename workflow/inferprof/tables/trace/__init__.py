"""What a trace saw: readers of Nsight Systems and Kineto, the timeline they fill, what an iteration did."""
