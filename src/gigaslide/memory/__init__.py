"""Memory: what a step will need (a formula), and what it did need (a meter)."""
