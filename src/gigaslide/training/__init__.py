"""The training loop, its schedule, its checkpoint and its augmentation; the engine is handed in."""
