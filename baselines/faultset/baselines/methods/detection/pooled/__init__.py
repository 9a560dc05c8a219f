"""Detectors that learn across episodes: one model of all services of all training episodes."""
