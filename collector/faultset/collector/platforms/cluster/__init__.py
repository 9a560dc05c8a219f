"""A cluster as a model: objects, controllers and a kubelet that say what a node has to do, free of I/O."""
