"""SocialNetwork: its spec, its steps, and its persona."""
