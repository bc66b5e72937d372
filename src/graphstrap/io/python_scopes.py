"""Python source read into scopes: which names a module, class or function binds, calls and mentions.

Files are parsed with `ast`; nothing is imported or executed. A dotted expression such as `self.parser.feed` becomes the
path `("self", "parser", "feed")`, so that no syntax tree outlives the file it came from.
"""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Dotted = tuple[str, ...]
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
SUPER = "super()"
IMPLICIT_CLASS_METHODS = ("__new__", "__init_subclass__", "__class_getitem__")


@dataclass(frozen=True)
class Import:
    """`import module`, or `from module import attribute`."""

    module: str
    attribute: str | None = None


@dataclass(frozen=True, eq=False)
class Alias:
    """`name = some.dotted.path`, or `name = some.dotted.path(...)`: an object, where the path is a class."""

    path: Dotted
    scope: Scope
    is_called: bool = False


@dataclass(frozen=True, eq=False)
class Instance:
    """The first parameter of a method: an object of the class."""

    of: Scope


@dataclass(eq=False)
class Scope:
    """A module, class or function. `bindings`: what a name may stand for, likeliest first; nothing: a variable."""

    kind: Literal["module", "class", "function"]
    name: str
    parent: Scope | None = None
    package: str = ""
    bindings: dict[str, list[Scope | Instance | Import | Alias]] = field(default_factory=dict)
    star_imports: list[str] = field(default_factory=list)
    bases: list[Dotted] = field(default_factory=list)
    calls: list[Dotted] = field(default_factory=list)
    identifiers: Counter[str] = field(default_factory=Counter)

    def bind(self, name: str, *meanings: Instance | Import | Alias | Scope) -> None:
        self.bindings.setdefault(name, []).extend(meanings)

    def define(self, scope: Scope, name: str) -> None:
        """A definition beats imports and aliases of the same name, and a later definition an earlier one."""
        self.bindings.setdefault(name, []).insert(0, scope)


@dataclass(frozen=True)
class Program:
    """Everything that was read: modules by dotted name, functions in the order of the source."""

    modules: dict[str, Scope]
    functions: list[Scope]
    num_skipped: int


def read_program(files: Iterable[tuple[str, Path]]) -> Program:
    """Read (module name, file) pairs. A file that cannot be read, decoded or parsed is skipped and counted."""
    modules: dict[str, Scope] = {}
    functions: list[Scope] = []
    num_skipped = 0
    for name, path in files:
        reader = _Reader(name, is_package=path.name == "__init__.py")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes and the like are the source's business
                tree = ast.parse(path.read_bytes(), filename=str(path))
            reader.visit_all(tree.body, reader.module)
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            num_skipped += 1
            continue
        modules[name] = reader.module
        functions += reader.functions
    return Program(modules, functions, num_skipped)


class _Reader:
    """Walks one module's syntax tree, keeping the scope it stands in."""

    def __init__(self, module_name: str, is_package: bool) -> None:
        package = module_name if is_package else module_name.rpartition(".")[0]
        self.module = Scope("module", module_name, package=package)
        self.functions: list[Scope] = []

    def visit_all(self, nodes: Iterable[ast.AST | None], scope: Scope) -> None:
        for node in nodes:
            if node is not None:
                self._visit(node, scope)

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        """Identifiers are names, attributes, parameters and keywords; never what stands inside a string."""
        identifier: str | None = None
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._visit_definition(node, scope)
                return
            case ast.Import() | ast.ImportFrom():
                _bind_imports(node, scope)
            case ast.Assign(targets=targets, value=value):
                _bind_alias(targets, value, scope)
            case ast.AnnAssign(target=target, value=annotated):
                _bind_alias([target], annotated, scope)
            case ast.withitem(context_expr=value, optional_vars=named):
                _bind_alias([named], value, scope)
            case ast.Call(func=func):
                if path := dotted_path(func):
                    scope.calls.append(path)
            case ast.Name(id=identifier, ctx=context):
                if not isinstance(context, ast.Load):
                    scope.bind(node.id)
            case ast.ExceptHandler(name=str(identifier)):
                scope.bind(identifier)
            case ast.Attribute(attr=identifier) | ast.arg(arg=identifier) | ast.keyword(arg=identifier):
                pass
            case ast.alias(name=name, asname=asname):
                identifier = asname or name
        if identifier:
            scope.identifiers[identifier] += 1
        self.visit_all(ast.iter_child_nodes(node), scope)

    def _visit_definition(self, node: FunctionNode | ast.ClassDef, parent: Scope) -> None:
        kind: Literal["class", "function"] = "class" if isinstance(node, ast.ClassDef) else "function"
        scope = Scope(kind, f"{parent.name}.{node.name}", parent, parent.package)
        parent.define(scope, node.name)
        self.visit_all(node.decorator_list, parent)
        if isinstance(node, ast.ClassDef):
            scope.bases = [path for base in node.bases if (path := dotted_path(base))]
            parent.identifiers[node.name] += 1
            self.visit_all([*node.bases, *node.keywords], parent)
        else:
            self.functions.append(scope)
            scope.identifiers[node.name] += 1
            _bind_parameters(node, scope)
            self.visit_all([node.args, node.returns], scope)
        self.visit_all(node.body, scope)


def _bind_imports(node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
    if isinstance(node, ast.Import):
        for item in node.names:
            module = item.name if item.asname else item.name.partition(".")[0]
            scope.bind(item.asname or module, Import(module))
        return
    origin = node.module or ""
    if node.level:  # a relative import counts from the package
        parts = scope.package.split(".") if scope.package else []
        origin = ".".join([*parts[: len(parts) - (node.level - 1)], *filter(None, [node.module])])
    for item in node.names:
        if item.name == "*":
            scope.star_imports.append(origin)
        else:
            scope.bind(item.asname or item.name, Import(origin, item.name))


def dotted_path(node: ast.AST | None) -> Dotted | None:
    """`a.b.c` as ("a", "b", "c"); `super().m` as ("super()", "m"); None for anything that is not a dotted name."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        path = dotted_path(node.value)
        return None if path is None else (*path, node.attr)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super":
        return (SUPER,)
    return None


def _bind_parameters(node: FunctionNode, scope: Scope) -> None:
    """Parameters are plain variables, but for a method's first, which is its object or its class."""
    positional = [*node.args.posonlyargs, *node.args.args]
    for argument in ast.iter_child_nodes(node.args):
        if isinstance(argument, ast.arg):
            scope.bind(argument.arg)
    owner = scope.parent
    if owner is None or owner.kind != "class" or not positional:
        return
    decorators = {dotted_path(decorator) for decorator in node.decorator_list}
    if ("classmethod",) in decorators or node.name in IMPLICIT_CLASS_METHODS:
        scope.bind(positional[0].arg, owner)
    elif ("staticmethod",) not in decorators:
        scope.bind(positional[0].arg, Instance(owner))


def _bind_alias(targets: Sequence[ast.expr | None], value: ast.expr | None, scope: Scope) -> None:
    """`name = path`, `name = path(...)`, `with path(...) as name`, and the same for `self.name` in a method."""
    is_called = isinstance(value, ast.Call)
    path = dotted_path(value.func if isinstance(value, ast.Call) else value)
    if path is None:
        return
    for target in targets:
        match dotted_path(target):
            case (name,) if path != (name,):
                scope.bind(name, Alias(path, scope, is_called))
            case (first, name) if (owner := _object_class(scope, first)) is not None and path != (first, name):
                owner.bind(name, Alias(path, scope, is_called))


def _object_class(scope: Scope, name: str) -> Scope | None:
    """The class that a method's `self` belongs to."""
    return next((meaning.of for meaning in scope.bindings.get(name, ()) if isinstance(meaning, Instance)), None)


# What a call stands for: names followed through scopes, imports, aliases and base classes. Nothing is run.


Value = Scope | Instance


class Resolver:
    """Follows dotted paths to the modules, classes and functions of a program.

    Every (scope, name) is resolved once. Imports and aliases that lead back to themselves end there: unknown.
    """

    def __init__(self, program: Program) -> None:
        self._modules = program.modules
        self._meanings: dict[tuple[Scope, str], Value | None] = {}
        self._members: dict[tuple[Scope, str], Value | None] = {}
        self._ancestors: dict[Scope, list[Scope]] = {}

    def called_function(self, path: Dotted, caller: Scope) -> Scope | None:
        """The function that `path(...)` calls in `caller`: of a class `__init__` or `__new__`. None when unknown."""
        try:
            value = self._follow(path, caller)
        except RecursionError:  # thousands of aliases in a row
            return None
        if isinstance(value, Instance):
            return self._method(value.of, "__call__")
        if value is None or value.kind == "module":
            return None
        return value if value.kind == "function" else self._method(value, "__init__") or self._method(value, "__new__")

    def _method(self, owner: Scope, name: str) -> Scope | None:
        value = self._member(owner, name)
        return value if isinstance(value, Scope) and value.kind == "function" else None

    def _follow(self, path: Dotted, scope: Scope) -> Value | None:
        first, rest = path[0], path[1:]
        if first == SUPER:
            owner: Scope | None = scope
            while owner is not None and owner.kind != "class":
                owner = owner.parent
            return self._inherited(owner, rest[0]) if owner is not None and len(rest) == 1 else None
        value = self._lookup(first, scope)
        for name in rest:
            value = None if value is None else self._member(value, name)
        return value

    def _lookup(self, name: str, scope: Scope) -> Value | None:
        """Python's rule: the scope itself, the functions around it, the module; never the classes around it."""
        current: Scope | None = scope
        while current is not None:
            if name in current.bindings and (current is scope or current.kind != "class"):
                return self._meaning(current, name)
            if current.kind == "module":
                return self._starred(current, name)
            current = current.parent
        return None

    def _member(self, value: Value, name: str) -> Value | None:
        scope = value.of if isinstance(value, Instance) else value
        if name == "__class__" and isinstance(value, Instance):
            return scope
        key = (scope, name)
        if key not in self._members:
            self._members[key] = None
            self._members[key] = self._find_member(scope, name)
        return self._members[key]

    def _find_member(self, scope: Scope, name: str) -> Value | None:
        if scope.kind == "module":
            submodule = self._modules.get(f"{scope.name}.{name}")
            return self._meaning(scope, name) or submodule or self._starred(scope, name)
        if scope.kind == "class":
            return self._meaning(scope, name) or self._inherited(scope, name)
        return None

    def _meaning(self, scope: Scope, name: str) -> Value | None:
        """The first of a name's possible meanings that leads anywhere."""
        key = (scope, name)
        if key not in self._meanings:
            self._meanings[key] = None
            found = (self._value(meaning) for meaning in scope.bindings.get(name, ()))
            self._meanings[key] = next((value for value in found if value is not None), None)
        return self._meanings[key]

    def _value(self, meaning: Value | Import | Alias) -> Value | None:
        if isinstance(meaning, Alias):
            value = self._follow(meaning.path, meaning.scope)
            if not meaning.is_called:
                return value
            return Instance(value) if isinstance(value, Scope) and value.kind == "class" else None
        if isinstance(meaning, Import):
            module = self._modules.get(meaning.module)
            return module if module is None or meaning.attribute is None else self._member(module, meaning.attribute)
        return meaning

    def _starred(self, module: Scope, name: str) -> Value | None:
        """What `from origin import *` brings: the last such import wins, and names with an underscore stay behind."""
        origins = [] if name.startswith("_") else reversed(module.star_imports)
        sources = (self._modules[origin] for origin in origins if origin in self._modules)
        found = (self._member(source, name) for source in sources)
        return next((value for value in found if value is not None), None)

    def _inherited(self, owner: Scope, name: str) -> Value | None:
        found = (self._meaning(base, name) for base in self._all_bases(owner))
        return next((value for value in found if value is not None), None)

    def _all_bases(self, owner: Scope) -> list[Scope]:
        """The resolvable base classes, depth first, each once."""
        if owner not in self._ancestors:
            self._ancestors[owner] = []
            home = owner.parent
            direct = [self._follow(path, home) for path in owner.bases if home is not None]
            classes = [base for base in direct if isinstance(base, Scope) and base.kind == "class"]
            every = [ancestor for base in classes for ancestor in (base, *self._all_bases(base))]
            self._ancestors[owner] = [base for base in dict.fromkeys(every) if base is not owner]
        return self._ancestors[owner]
