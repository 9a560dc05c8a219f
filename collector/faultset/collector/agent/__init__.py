"""The program that impairs pods' networks, kills containers and removes volumes, on a node or inside a pod.

It runs in the application's image and imports only the standard library.
"""
