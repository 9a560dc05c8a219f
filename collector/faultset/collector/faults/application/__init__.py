"""Faults of programs, accounts and credentials."""
