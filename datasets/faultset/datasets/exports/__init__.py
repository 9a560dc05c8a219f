"""Export layouts of other benchmarks and libraries, and wide tables for training."""
