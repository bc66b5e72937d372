"""graphstrap info: versions, devices, and which backend runs and why."""

from __future__ import annotations

import torch

from graphstrap.cli import _options as o
from graphstrap.environment import describe_environment
from graphstrap.ops import backend
from graphstrap.recipe import shipped_recipes


def info(as_json: o.AsJson = False) -> None:
    """Say what runs here."""
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    backends = {device: backend(device)._asdict() for device in devices}
    facts = {**describe_environment(), "backends": backends, "recipes": ["default", *shipped_recipes()]}
    if as_json:
        o.print_json(facts)
        return
    for name, value in facts.items():
        if name == "backends":
            for device, chosen in backends.items():
                print(f"{f'backend ({device})':18s} {chosen['name']}: {chosen['reason']}")
        elif name == "recipes":
            print(f"{name:18s} {', '.join(facts['recipes'])}")
        elif value is not None:
            print(f"{name:18s} {value}")
