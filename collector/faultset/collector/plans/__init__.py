"""Plans of campaigns and episodes."""
