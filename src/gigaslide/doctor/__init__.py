"""`gigaslide doctor`: what is installed, what this machine can do, and what would fail, each found by trying it."""
