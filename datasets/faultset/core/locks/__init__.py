"""Locks on folders, and the processes that own them."""
