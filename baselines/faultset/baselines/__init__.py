"""Diagnosis methods that are not language models: detectors, localizers, diagnosers and controls."""
