"""Run baselines over a dataset on dask, each in a process with limits."""
