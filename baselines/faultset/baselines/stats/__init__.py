"""Statistics on arrays, independent of episodes: tests, tails, change points and distances."""
