"""What is known by a name: methods, encoders, readers, protocols and verbs, our own and those of installed packages.

A registry imports what a name stands for when somebody asks for it, and not before. In a program or a notebook the
decorator `REGISTRY.register("mine")` is enough. An installed package adds a name by an entry point of the registry's
group, which the command line sees too:

    [project.entry-points."graphstrap.encoders"]
    mine = "my_package.encoder"            # a module that registers "mine", or "my_package.encoder:Mine"
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from graphstrap.errors import InputError

T = TypeVar("T")


class Registry(Generic[T]):
    """Things of one kind by name.

    Args:
        kind: what they are, for messages: "encoder".
        group: the entry-point group by which other packages add to them: "graphstrap.encoders".
        own: Graphstrap's own names and, for each, "module" (which registers it) or "module:attribute".
    """

    def __init__(self, kind: str, *, group: str, own: Mapping[str, str]) -> None:
        self.kind, self.group, self._own = kind, group, dict(own)
        self._loaded: dict[str, T] = {}

    @cached_property
    def _plugins(self) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in entry_points(group=self.group) if entry.name not in self._own}

    def names(self) -> list[str]:
        """All names, Graphstrap's own first."""
        return list(dict.fromkeys([*self._own, *self._plugins, *self._loaded]))

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._loaded or name in self._plugins

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def is_own(self, name: str) -> bool:
        """Whether Graphstrap ships it."""
        return name in self._own

    def origin(self, name: str) -> str:
        """The package that adds a name by an entry point."""
        entry = self._plugins[name]
        return entry.module.partition(".")[0] if entry.dist is None else entry.dist.name

    def register(self, name: str) -> Callable[[T], T]:
        """A decorator that makes a class or function known by this name. Registering a name again replaces it.

        Example:
            @ENCODERS.register("mine")
            class Mine(Encoder): ...
        """

        def add(thing: T) -> T:
            home = self._own.get(name, "").partition(":")[0]
            if home and getattr(thing, "__module__", "") != home:
                raise InputError(f"{self.kind} {name!r} is Graphstrap's own: give yours another name")
            self._loaded[name] = thing
            return thing

        return add

    def forget(self, name: str) -> None:
        """Undo `register`."""
        self._loaded.pop(name, None)

    def get(self, name: str) -> T:
        """What the name stands for; an InputError names the nearest known one."""
        if name not in self._loaded:
            self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> None:
        if name in self._own:
            module, _, attribute = self._own[name].partition(":")
            found = import_module(module)
        elif name in self._plugins:
            module, attribute = self._plugins[name].module, self._plugins[name].attr
            try:
                found = import_module(module)
            except Exception as error:  # whatever somebody else's module does
                raise InputError(f"{self.kind} {name!r} of {module} cannot be imported: {error!r}") from error
        else:
            hint = nearest(name, self.names()) or "."
            raise InputError(f"there is no {self.kind} {name!r}{hint} Known are {', '.join(self.names())}")
        if attribute and name not in self._loaded:
            if not hasattr(found, attribute):
                raise InputError(f"{self.kind} {name!r}: {module} has no {attribute!r}")
            self._loaded[name] = getattr(found, attribute)
        if name not in self._loaded:
            raise InputError(f"{module} does not register the {self.kind} {name!r} that its entry point promises")


def nearest(word: str, known: list[str]) -> str:
    """A hint to the known word that is most like this one; nothing if none is."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.4)
    return f"; did you mean {close[0]!r}?" if close else ""


def import_extra(module: str, fix: str) -> Any:
    """A module of a package that Graphstrap does not need for itself; an InputError with the fix where it is not."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(fix) from error
