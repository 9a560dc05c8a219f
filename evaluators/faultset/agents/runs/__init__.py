"""Records of agent runs: answer, status and usage of each, and separately its ground truth."""
