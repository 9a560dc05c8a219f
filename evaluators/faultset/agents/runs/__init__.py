"""Runs of agents as rows: what each did and answered, how it ended, and, apart from that, what is true."""
