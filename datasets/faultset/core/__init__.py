"""Errors, command line, plug-ins, processes and files: used by all packages of faultset."""
