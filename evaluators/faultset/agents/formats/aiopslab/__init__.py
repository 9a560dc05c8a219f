"""Sessions of AIOpsLab: its grammar of actions, its labels and their changes, and its session files."""
