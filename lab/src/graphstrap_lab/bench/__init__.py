"""What `graphstrap bench` measures: steps against plain PyG, growth with the graph, products against their floors, the
main table."""

from __future__ import annotations
