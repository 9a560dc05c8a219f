"""Small neural networks: written once for NumPy and JAX, trained with JAX and optax, run with NumPy."""
