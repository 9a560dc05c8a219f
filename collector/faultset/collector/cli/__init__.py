"""The commands `collect`, `recover`, `doctor` and `list`."""
