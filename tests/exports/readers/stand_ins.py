"""Stand-ins for modules that a tool imports at its start and that its readers do not use; nothing in them works."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types


class _Class(type):
    def __getattr__(cls, name):
        return _make(name)


def _make(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _Class(name, (), {})


class _Anything(types.ModuleType):
    def __getattr__(self, name):
        return _make(name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names):
        self._names = names

    def find_spec(self, name, path=None, target=None):
        known = name.split(".")[0] in self._names
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if known else None

    def create_module(self, spec):
        return _Anything(spec.name)

    def exec_module(self, module):
        module.__path__ = []


def stand_in_for(*names):
    """Let `names` be imported where they are not installed; return those that are not."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    sys.meta_path.append(_Finder(set(missing)))
    return missing
