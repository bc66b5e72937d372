"""NetworkX and pandas: there and back.

    python examples/round_trips.py

Zachary's karate club from NetworkX: 34 people, 78 friendships, no columns. Embeddings go back as node attributes and
as a data frame; two clusters of them are compared with the two clubs that the members later chose.
"""

from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import normalize

import graphstrap as gs
from graphstrap.io.networkx import from_networkx, to_networkx


def from_frames(edges: pd.DataFrame, nodes: pd.DataFrame, *, columns: list[str]) -> gs.Graph:
    """Frames in memory need no files: number the ids, hand over the columns."""
    number = pd.Series(range(len(nodes)), index=nodes["id"])
    return gs.Graph.from_edges(
        number[edges["source"]].to_numpy(copy=True),  # pandas lends its arrays read-only
        number[edges["target"]].to_numpy(copy=True),
        num_nodes=len(nodes),
        x=nodes[columns].to_numpy(np.float32, copy=True) if columns else None,
        ids=nodes["id"].to_numpy(),
    )


def main(*, steps: int = 300) -> dict[str, float]:
    club = nx.karate_club_graph()
    graph = from_networkx(club, label="club")
    again = from_networkx(to_networkx(graph))
    assert again.fingerprint == graph.fingerprint, "nothing is lost on the way there and back"

    h = normalize(gs.BGRL(seed=0, settings={"train.steps": steps}).fit(graph).embed(graph))
    nx.set_node_attributes(club, dict(zip(graph.external_ids.tolist(), h.tolist(), strict=True)), "embedding")

    frame = pd.DataFrame(h, index=pd.Index(graph.external_ids, name="id")).add_prefix("h")
    frame["club"] = [club.nodes[person]["club"] for person in frame.index]
    vectors = frame.filter(regex="^h").to_numpy()
    degrees = np.array([[degree] for _, degree in club.degree(frame.index)], dtype=float)
    scores = {}
    for name, rows in (("degree alone", degrees), ("BGRL", vectors)):
        clusters = KMeans(2, n_init=10, random_state=0).fit_predict(rows)
        scores[name] = 100 * adjusted_rand_score(frame["club"], clusters)
        print(f"{name:14} agreement of two clusters with the two clubs (adjusted Rand index): {scores[name]:.0f} %")

    edges = nx.to_pandas_edgelist(club)
    nodes = pd.DataFrame({"id": list(club), "friends": degrees[:, 0]})
    framed = from_frames(edges, nodes, columns=["friends"])
    print(f"from data frames: {framed}")
    assert framed.num_edges == graph.num_edges
    return scores


if __name__ == "__main__":
    main()
