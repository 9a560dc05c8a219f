"""The formats that come with the package."""
