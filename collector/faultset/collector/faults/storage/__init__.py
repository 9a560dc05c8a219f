"""Faults of stores and brokers that run on, but badly."""
