"""Metrics on the labels of a slide: sums and counts over windows, ratios at the very end."""
