"""Reading other benchmarks' data into our tables and versions."""
