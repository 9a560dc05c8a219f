"""Data for models that learn: folds, features and windows of episodes as arrays, without the truth among the inputs."""
