"""The dataset format: schemas, episodes, views without the truth, and immutable versions."""
