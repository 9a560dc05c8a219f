"""The objects of an embedded cluster, as its API server keeps them."""
