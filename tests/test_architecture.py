"""The fences and the one-way arrows between the parts of the package, read from its source."""

import ast
import graphlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import LONGEST_FIRST, SLOW

PACKAGE = Path(__file__).parents[1] / "src/gigaslide"
LONGEST_FILE_LINES = 320

# A part (module or folder of the package) imports parts of earlier lines only. A new part gets a place here.
LAYERS = [
    ["classes", "errors", "files", "geometry"],
    ["config", "console", "machine", "mlflow_server", "provenance", "quiet"],
    ["slides", "network", "demo", "tracking"],
    ["masks"],
    ["streaming"],
    ["memory"],
    ["evaluation"],
    ["training", "reporting", "viewer"],
    ["prediction", "exports"],
    ["stages"],
    ["sweep", "doctor"],
    ["cluster"],
    ["benchmarks"],
    ["api", "cli_bench", "cli_predict", "cli_slides", "cli_view"],
    ["cli"],
    ["__main__"],
]
# Narrower than the layers.
ONLY_IMPORTS = {
    "demo": {"errors", "files", "geometry", "console"},  # also the test slides of other projects, one day
    "machine": set(),
}
ONLY_IMPORTED_BY = {
    "tracking": {"stages", "benchmarks", "sweep", "cluster", "doctor", "cli"},  # everything else is handed a run
}
# One foreign library, one file. yaml: the settings, and dvc.lock, from which a run learns its data's hashes.
SOLE_IMPORTERS = {
    "openslide": {
        "slides/reader.py",
        "benchmarks/openslide_alone.py",
    },  # the latter is what the reader is timed against
    "mlflow": {"tracking.py"},
    "optuna": {"sweep/study.py", "sweep/storage.py", "sweep/analysis.py"},
    "ray": {"cluster/connection.py"},
    "dvc": {"stages/dvc_add.py"},
    "yaml": {"config.py", "provenance.py"},
}
# Slides are read by many processes; TensorFlow in each of them would cost seconds and gigabytes.
WITHOUT_TENSORFLOW = [
    "errors",
    "files",
    "geometry",
    "config",
    "console",
    "machine",
    "slides",
    "demo",
    "masks",
    "exports",
    "viewer",
]
# What `gigaslide --help` must not wait for.
HEAVY = [
    "tensorflow",
    "keras",
    "mlflow",
    "dvc",
    "numpy",
    "scipy",
    "skimage",
    "matplotlib",
    "openslide",
    "tensorstore",
]


def trees(package):
    """Return the syntax tree of every file, by its path inside the package."""
    files = sorted(package.rglob("*.py"))
    return {file.relative_to(package).as_posix(): ast.parse(file.read_text("utf-8")) for file in files}


def module_name(path):
    """Return the dotted name, inside the package, of a file; a folder's `__init__.py` is the folder."""
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def part(name):
    return name.split(".")[0]


def imports(package):
    """Return, by file, the dotted names it imports anywhere in it, absolute: inside functions counts too.

    `from a import b` counts as `a.b`, which may be a module or something in one.
    """
    found = {}
    for path, tree in trees(package).items():
        names = found[path] = set()
        folder = [package.name, *path.split("/")[:-1]]
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = [*folder[: len(folder) - node.level + 1]] if node.level else []
                base += node.module.split(".") if node.module else []
                names.update(".".join([*base, alias.name]) for alias in node.names)
    return found


def internal_imports(package):
    """Return, by module, the modules of the package that it imports; the outermost `__init__` is left out."""
    found = imports(package)
    known = {module_name(path) for path in found}
    graph = {}
    for path, names in found.items():
        targets = graph[module_name(path)] = set()
        for name in names:
            if name.startswith(f"{package.name}."):
                name = name.removeprefix(f"{package.name}.")
                # The longest name that is a module; an unknown one stays, so that its part is still checked.
                parent = name.rpartition(".")[0]
                targets.add(name if name in known or not parent else parent)
    return graph


def broken_fences(package):
    return [
        f"{path} imports {library}"
        for path, names in imports(package).items()
        for library, allowed in SOLE_IMPORTERS.items()
        if path not in allowed and library in map(part, names)
    ]


def broken_arrows(package):
    level = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    wrong = []
    for module, targets in internal_imports(package).items():
        source = part(module)
        for target in sorted({part(name) for name in targets} - {source, "__version__"}):
            unknown = [name for name in (source, target) if name not in level]
            if unknown and source != "__init__":
                wrong.append(f"{unknown[0]} has no place in LAYERS")
            elif (
                source == "__init__"
                or level[target] >= level[source]
                or target not in ONLY_IMPORTS.get(source, level)
                or source not in ONLY_IMPORTED_BY.get(target, level)
            ):
                wrong.append(f"{module} imports {target}")
    return wrong


def reaching_tensorflow(package):
    """Return the modules of WITHOUT_TENSORFLOW that import it, themselves or through others."""
    graph, found = internal_imports(package), imports(package)
    direct = {module_name(path) for path, names in found.items() if {"tensorflow", "keras"} & set(map(part, names))}
    wrong = []
    for module in graph:
        seen, waiting = set(), [module]
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += [*graph.get(name, ()), name.rpartition(".")[0]]  # a folder's __init__ runs too
        if part(module) in WITHOUT_TENSORFLOW and seen & direct:
            wrong.append(f"{module} reaches tensorflow through {sorted(seen & direct)}")
    return wrong


def circles(package):
    try:
        graphlib.TopologicalSorter(internal_imports(package)).prepare()
    except graphlib.CycleError as error:
        return [" -> ".join(error.args[1])]
    return []


def forbidden_statements(package):
    wrong = []
    for path, tree in trees(package).items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Assert):
                wrong.append(f"{path}:{node.lineno} assert (python -O drops it: raise an error)")
            printing = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            if printing and path != "cli.py":
                wrong.append(f"{path}:{node.lineno} print")
    return wrong


def long_files(package):
    lengths = {path: len((package / path).read_text("utf-8").splitlines()) for path in trees(package)}
    return [f"{path} has {lines} lines" for path, lines in lengths.items() if lines > LONGEST_FILE_LINES]


RULES = [
    broken_fences,
    broken_arrows,
    reaching_tensorflow,
    circles,
    forbidden_statements,
    long_files,
]


@pytest.mark.parametrize("rule", RULES)
def test_the_package_keeps(rule):
    assert len(trees(PACKAGE)) > 3
    assert rule(PACKAGE) == []


# Each rule has to see its own breach in a small package, and only there.
CLEAN = {
    "__init__.py": "",
    "errors.py": "class UsageError(Exception): ...",
    "config.py": "import yaml\nfrom small.errors import UsageError",
    "slides/__init__.py": "",
    "slides/reader.py": "import openslide\nfrom small import errors\nfrom . import labels",
    "slides/labels.py": "from ..errors import UsageError",
    "network/unet.py": "import tensorflow as tf\nfrom small import config",
    "tracking.py": "def start():\n    import mlflow",
    "stages/train.py": "from small import tracking\nfrom small.network.unet import tf\nimport small.slides",
    "cli.py": "def train():\n    from small.stages import train\n    print(train)",
}
BREACHES = [
    (broken_fences, "slides/store.py", "def f():\n    from openslide import OpenSlide"),
    (broken_fences, "stages/report.py", "import mlflow.client"),
    (broken_fences, "network/layers.py", "import yaml"),
    (broken_arrows, "errors.py", "from small import config"),
    (broken_arrows, "network/layers.py", "from small.slides.reader import x"),
    (broken_arrows, "network/layers.py", "def f():\n    from ..slides import reader"),
    (broken_arrows, "demo/tiff.py", "import small.config"),
    (broken_arrows, "training/loop.py", "from small.tracking import start"),
    (broken_arrows, "__init__.py", "from small import errors"),
    (broken_arrows, "mystery.py", "from small import errors"),
    (reaching_tensorflow, "slides/labels.py", "def f():\n    import keras"),
    (reaching_tensorflow, "slides/labels.py", "from small.network import unet"),
    (circles, "slides/labels.py", "def f():\n    from small.slides import reader"),
    (forbidden_statements, "slides/labels.py", "assert True"),
    (forbidden_statements, "slides/labels.py", "print(1)"),
    (long_files, "slides/labels.py", "x = 1\n" * (LONGEST_FILE_LINES + 1)),
]


def write_package(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("rule", RULES)
def test_a_clean_package_passes(tmp_path, rule):
    assert rule(write_package(tmp_path / "small", CLEAN)) == []


@pytest.mark.parametrize(("rule", "path", "text"), BREACHES)
def test_a_breach_is_seen(tmp_path, rule, path, text):
    wrong = rule(write_package(tmp_path / "small", CLEAN | {path: text}))
    assert len(wrong) >= 1
    assert any(module_name(path) in line or path in line for line in wrong)


@pytest.mark.parametrize("module", ["gigaslide", "gigaslide.cli", "gigaslide.config"])
def test_the_command_line_starts_without_heavy_libraries(module):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not there")
    code = f"import sys, {module}; print(*sorted(set({HEAVY}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_test_files_that_come_first_are_there():
    assert [name for name in (*LONGEST_FIRST, *SLOW) if not (Path(__file__).parent / name).exists()] == []
