"""The pages' templates, which lie beside this file."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def environment() -> Environment:
    """Return where templates are read from: values are escaped, and one that is missing is an error."""
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
