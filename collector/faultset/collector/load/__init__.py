"""Open-loop load against an application, and its results."""
