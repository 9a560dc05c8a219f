"""Stores that run their original servers, such as PostgreSQL, instead of Redis."""
