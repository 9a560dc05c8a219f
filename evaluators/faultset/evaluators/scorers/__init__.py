"""Scorers: metrics that are computed from single answers, registered through the entry points `faultset.scorers`."""
