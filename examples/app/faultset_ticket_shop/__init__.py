"""A shop for tickets: an application of three services, a cache and a database."""
