"""Sessions of AIOpsLab: action grammar, labels with their history, and session files."""
