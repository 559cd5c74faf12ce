"""The exact training step over the workers of a cluster."""
