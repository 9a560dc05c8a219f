"""What a leaderboard says of agents beyond the tables: trials, tokens, costs, honesty, and what they looked at."""
