"""The search over settings under a memory constraint."""
