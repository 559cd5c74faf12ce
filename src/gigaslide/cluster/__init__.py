"""Tiles of a step, trials of a sweep and slides over the machines of a Ray cluster; what a step there will take."""
