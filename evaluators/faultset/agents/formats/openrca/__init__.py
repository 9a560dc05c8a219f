"""OpenRCA's archives of runs: their truths, which stand there in pieces, and their scoring."""
