"""The platform protocol, and what a campaign asks of a platform outside of episodes."""
