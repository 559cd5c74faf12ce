"""`python -m gigaslide` is `gigaslide`."""

from gigaslide.cli import main

main()
