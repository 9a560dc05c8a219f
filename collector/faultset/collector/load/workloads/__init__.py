"""What clients do: patterns of the request rate, and the regions that requests come from."""
