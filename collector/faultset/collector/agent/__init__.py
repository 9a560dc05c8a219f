"""The program that impairs the network of pods, kills containers and removes volumes, on a node or inside of a pod.

It runs inside the image of the application and imports nothing but the standard library.
"""
