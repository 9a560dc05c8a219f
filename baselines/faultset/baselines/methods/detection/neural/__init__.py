"""Detectors with a neural network; those on metrics share the limits of the pooled detectors."""
