"""What clients do: patterns of the request rate, users with sessions, and the regions that requests come from."""
