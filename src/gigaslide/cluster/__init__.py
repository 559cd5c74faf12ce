"""The exact step over the workers of a Ray cluster: processes on this machine, or on many."""
