"""graphstrap neighbors: the nodes most like a given one."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from graphstrap.cli import _options as o


def neighbors(
    folder: o.RunFolder,
    node: Annotated[str, Option(help="The node's id, as in the node table.")],
    k: Annotated[int, Option("-k", help="How many.", min=1)] = 10,
    device: o.Device = "auto",
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
) -> None:
    """List the k nearest nodes by cosine similarity of their embeddings."""
    from graphstrap.api.neighbors import find_neighbors, find_node

    model, graph = o.open_run(folder, device=device, quiet=quiet, or_instant=True)
    index = find_node(graph, node)  # before the embedding is computed: there may be no such node
    found = find_neighbors(model.embed(graph), index, k=k)
    ids = graph.external_ids
    if as_json:
        o.print_json([{"id": ids[i].item(), "similarity": round(similarity, 6)} for i, similarity in found])
    else:
        print("\n".join(f"{similarity:.4f}  {ids[i]}" for i, similarity in found))
