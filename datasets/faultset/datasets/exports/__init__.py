"""Writing our episodes in other benchmarks' layouts, and as plain wide tables for training."""
