"""Prediction files: answers of models that were trained and run elsewhere, scored beside the baselines."""
