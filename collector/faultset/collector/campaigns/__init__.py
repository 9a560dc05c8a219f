"""Campaigns, which run many episodes concurrently and can be resumed."""
