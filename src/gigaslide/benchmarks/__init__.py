"""What the README states, measured."""
