"""Small graphs drawn around roots: what to draw, which roots, their features, ahead of time."""
