"""The methods themselves, one family in a folder."""
