"""Read and publish datasets at URLs that fsspec supports, such as object stores."""
