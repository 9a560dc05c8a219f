"""The relay process of the embedded platform, which takes the role of kube-proxy and the network.

It listens on the address of every Service, forwards connections to the pods behind it, counts the traffic of each pod
and applies network impairments.
"""
