"""graphstrap datasets: names, sizes, where they come from, which are on this disk."""

from __future__ import annotations

from dataclasses import asdict

from graphstrap.cli import _options as o


def datasets(as_json: o.AsJson = False) -> None:
    """List the datasets that `fit` knows by name."""
    from graphstrap.io.datasets import describe

    found = describe()
    if as_json:
        o.print_json([asdict(entry) for entry in found])
        return
    print(f"{'name':24s} {'nodes':>9s} {'edges':>10s} {'features':>8s} {'classes':>7s}  here  origin")
    for entry in found:
        sizes = [f"{n:,}" if n is not None else "?" for n in (entry.nodes, entry.edges, entry.features, entry.classes)]
        here = "yes" if entry.on_disk else "no"
        print(
            f"{entry.name:24s} {sizes[0]:>9s} {sizes[1]:>10s} {sizes[2]:>8s} {sizes[3]:>7s}  {here:4s}  {entry.origin}"
        )
