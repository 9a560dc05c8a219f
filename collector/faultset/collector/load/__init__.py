"""Open-loop load on an application, and its results."""
