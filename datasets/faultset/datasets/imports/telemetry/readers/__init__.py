"""Readers of file formats; each turns records into staged rows or counts them as dropped."""
