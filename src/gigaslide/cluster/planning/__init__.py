"""What a step over a cluster is predicted to take; no Ray, and no TensorFlow."""
