"""The commands of `faultset dataset`."""
