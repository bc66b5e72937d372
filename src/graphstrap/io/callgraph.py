"""call_graph: the functions of Python source and the calls between them, read with `ast`, never imported or executed.

Nodes are functions and methods, in the order of the source; their ids are dotted names such as `statistics.mean` or
`collections.OrderedDict.popitem` (a second one of the same name gets `#2`). An edge is a call that could be resolved:
to a name of the module, to an imported one, to a method of `self`, `cls`, `super()` or of an object made in sight, to a
class (its `__init__`). Features are the words of the identifiers in signature and body: `parseHTTPHeader` and
`parse_http_header` are both parse, http, header. Labels are the top-level modules with enough functions.
"""

from __future__ import annotations

import hashlib
import logging
import platform
import re
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import numpy as np

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.io.python_scopes import Program, Resolver, read_program

TESTS = frozenset({"test", "tests", "idle_test"})
STDLIB_EXCLUDED = TESTS | {"idlelib", "lib2to3", "turtledemo", "site-packages", "dist-packages"}
STDLIB_RULES = 1  # a new number whenever the graph of the same source changes
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

logger = logging.getLogger(__name__)


def call_graph(
    *sources: str | Path,
    name: str = "calls",
    directed: bool = False,
    exclude: Iterable[str] = TESTS,
    min_functions_per_word: int = 3,
    max_word_share: float = 0.1,
    min_functions_per_class: int = 80,
    label_depth: int = 1,
) -> Graph:
    """The call graph of packages, folders or files.

    Args:
        sources: paths, or names of installed top-level packages. A folder without `__init__.py` is a folder of modules.
        name: of the graph.
        directed: True keeps the direction from caller to callee; False adds the reverse.
        exclude: names of folders and modules to leave out.
        min_functions_per_word, max_word_share: a word is a feature when it occurs in at least so many functions, and at
            most in this share of them.
        min_functions_per_class: functions of smaller modules are unlabelled (-1).
        label_depth: how many parts of a function's dotted name make its label.
    """
    if not sources:
        raise InputError("call_graph needs something to read: give paths or names of packages")
    excluded = frozenset(exclude)
    roots = [_find_source(source) for source in sources]
    files: dict[str, Path] = {}
    for root in roots:
        own: dict[str, Path] = {}
        for module, path in find_modules(root, exclude=excluded):
            own.setdefault(module, path)  # a package comes before a file of its name
        for module, path in own.items():
            if files.setdefault(module, path).resolve() != path.resolve():
                raise InputError(
                    f"{files[module]} and {path} are both {module}: give the folder that both are in, or leave one out "
                    "with exclude"
                )
    program = read_program(files.items())
    if program.num_skipped:
        logger.warning("%d of %d Python files could not be parsed and were skipped", program.num_skipped, len(files))
    if not program.functions:
        raise InputError(f"no functions in {', '.join(map(str, roots))}: give folders or files of Python source")
    source, target = _resolved_calls(program)
    x, words = _word_features(program, min_functions_per_word, max_word_share)
    labels, class_names = _module_labels(program, label_depth, min_functions_per_class)
    return Graph.from_edges(
        source,
        target,
        num_nodes=len(program.functions),
        directed=directed,
        x=x,
        feature_names=words,
        labels=labels,
        class_names=class_names,
        ids=_unique_names(program),
        name=name,
    )


def stdlib_graph() -> Graph:
    """The call graph of this Python's standard library, without tests and the programs IDLE, 2to3 and turtledemo."""
    return call_graph(
        _stdlib_folder(), name="stdlib", exclude=STDLIB_EXCLUDED, min_functions_per_word=13, min_functions_per_class=80
    )


def stdlib_version() -> str:
    """Python's version and a fingerprint of the source files: graphs of the same version are the same."""
    folder = _stdlib_folder()
    digest = hashlib.blake2b(str(STDLIB_RULES).encode(), digest_size=4)
    for name, path in find_modules(folder, exclude=STDLIB_EXCLUDED):
        digest.update(f"{name} {path.stat().st_size}\n".encode())
    return f"{platform.python_version()}-{digest.hexdigest()}"


def _stdlib_folder() -> Path:
    folder = Path(sysconfig.get_paths()["stdlib"])
    if not (folder / "statistics.py").is_file():
        raise InputError(f"the source of the standard library is not in {folder}: use a Python that came with it")
    return folder


def _find_source(source: str | Path) -> Path:
    """A path that is there, or the place of an installed top-level package, which is not imported."""
    path = Path(source)
    if path.exists():
        return path
    spec = PathFinder.find_spec(str(source)) if str(source).isidentifier() else None
    if spec is not None and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
        return Path(spec.origin)
    raise InputError(f"{source} is neither a path nor an installed package with Python source: check its name")


def find_modules(root: Path, *, exclude: frozenset[str]) -> Iterator[tuple[str, Path]]:
    """(module name, file) for a file, a package (a folder with `__init__.py`) or every module in a folder, in order."""
    if root.is_file():
        yield root.stem, root
    else:
        yield from _walk(root, f"{root.resolve().name}." if (root / "__init__.py").is_file() else "", exclude)


def _walk(folder: Path, prefix: str, exclude: frozenset[str]) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.iterdir()):
        if path.name in exclude or path.stem in exclude:
            continue
        if path.is_dir() and path.name.isidentifier() and not path.is_symlink():
            yield from _walk(path, f"{prefix}{path.name}.", exclude)
        elif path.name == "__init__.py":
            yield prefix.removesuffix("."), path
        elif path.suffix == ".py" and path.is_file():
            yield prefix + path.stem, path


def _resolved_calls(program: Program) -> np.ndarray[Any, np.dtype[np.int64]]:
    """(2, E): callers and callees as node numbers."""
    number = {function: place for place, function in enumerate(program.functions)}
    resolver = Resolver(program)
    calls = [
        (place, number[callee])
        for caller, place in number.items()
        for path in dict.fromkeys(caller.calls)
        if (callee := resolver.called_function(path, caller)) is not None
    ]
    return np.array(calls, dtype=np.int64).reshape(-1, 2).T


def split_words(identifier: str) -> list[str]:
    """The lower-case words of two or more letters in a snake_case or camelCase identifier."""
    return [word.lower() for word in WORD.findall(identifier) if len(word) > 1]


def _word_features(
    program: Program, min_functions: int, max_share: float
) -> tuple[SparseMatrix | None, tuple[str, ...]]:
    """(N, F) of ones: which words occur in which function, and the words."""
    from sklearn.feature_extraction.text import CountVectorizer

    rows = [{word for name in function.identifiers for word in split_words(name)} for function in program.functions]
    most = int(max(max_share * len(rows), min_functions))
    counter = CountVectorizer(analyzer=list, min_df=min_functions, max_df=most, dtype=np.float32)
    try:
        x = counter.fit_transform(rows)
    except ValueError:  # no word is left
        return None, ()
    return SparseMatrix.from_scipy(x), tuple(counter.get_feature_names_out().tolist())


def _module_labels(program: Program, depth: int, min_functions: int) -> tuple[list[int] | None, tuple[str, ...] | None]:
    modules = [".".join(function.name.split(".")[:depth]) for function in program.functions]
    sizes = Counter(modules)
    names = tuple(sorted(module for module, size in sizes.items() if size >= min_functions))
    number = {module: place for place, module in enumerate(names)}
    return ([number.get(module, -1) for module in modules], names) if names else (None, None)


def _unique_names(program: Program) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    seen: Counter[str] = Counter()
    names = []
    for function in program.functions:
        seen[function.name] += 1
        names.append(function.name if seen[function.name] == 1 else f"{function.name}#{seen[function.name]}")
    return np.array(names, dtype=np.str_)
