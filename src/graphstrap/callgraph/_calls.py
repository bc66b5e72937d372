"""What a call stands for: names followed through scopes, imports, aliases and base classes. Nothing is run."""

from __future__ import annotations

from graphstrap.callgraph._scopes import SUPER, Alias, Dotted, Import, Instance, Program, Scope

Meaning = Scope | Instance | Import | Alias
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
            owner = _enclosing_class(scope)
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

    def _value(self, meaning: Meaning) -> Value | None:
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


def _enclosing_class(scope: Scope) -> Scope | None:
    current: Scope | None = scope
    while current is not None and current.kind != "class":
        current = current.parent
    return current
