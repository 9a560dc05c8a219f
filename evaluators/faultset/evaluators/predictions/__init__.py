"""Prediction files: answers of external models, scored with the baselines."""
