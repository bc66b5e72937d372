"""Small graphs drawn around roots: what to draw, which roots, their features, ahead of time."""

from graphstrap.sampling.gather import Gatherer
from graphstrap.sampling.part import part_of
from graphstrap.sampling.prefetch import Prefetcher
from graphstrap.sampling.roots import roots_at
from graphstrap.sampling.sampler import FanOuts, Sampler

__all__ = ["FanOuts", "Gatherer", "Prefetcher", "Sampler", "part_of", "roots_at"]
