"""Plans: what a campaign and each of its episodes will be."""
