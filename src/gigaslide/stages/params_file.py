"""Changing params.yaml when a user asks for it; its comments and its order stay."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq

from gigaslide import config
from gigaslide.files import atomic_path

_WIDTH = 10_000  # no line of the file is broken


def set_values(params: Path, values: Mapping[str, Any]) -> list[str]:
    """Write `values`, by dotted key (`slides.dir`), into `params`; return what changed, one line each.

    Raises:
        UsageError: the file cannot take the values; it is then left as it was.
    """
    before = config.load(params).flat()
    yaml = YAML()
    yaml.preserve_quotes, yaml.width = True, _WIDTH
    yaml.representer.add_representer(type(None), _null)
    document = yaml.load(params.read_text(encoding="utf-8"))
    changed = []
    for name, value in values.items():
        block, _, key = name.partition(".")
        if document[block][key] != value:
            changed.append(f"{name}: {before[name]} -> {value}")
            document[block][key] = _in_one_line(value) if isinstance(value, list) else value
    text = io.StringIO()
    yaml.dump(document, text)
    with atomic_path(params) as temporary:
        temporary.write_text(text.getvalue(), encoding="utf-8")
        config.load(temporary)
    return changed


def _null(representer: Any, value: None) -> Any:
    # Otherwise it is left empty.
    return representer.represent_scalar("tag:yaml.org,2002:null", "null")


def _in_one_line(values: list[Any]) -> CommentedSeq:
    found = CommentedSeq(values)
    found.fa.set_flow_style()
    return found
