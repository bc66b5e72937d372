"""A method and an encoder that Graphstrap finds by the entry points in pyproject.toml."""
