"""The stages of the pipeline: stage = block of params.yaml = DVC stage = folder in results/."""
