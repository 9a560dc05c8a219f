"""The program that every service of an application runs."""
