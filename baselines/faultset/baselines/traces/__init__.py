"""Spans and traces: durations, events, and abnormal requests."""
