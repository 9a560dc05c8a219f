"""This machine as a platform with shorter episodes."""
