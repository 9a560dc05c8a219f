"""Statistics on arrays, free of episodes: tests, tails, change points and distances."""
