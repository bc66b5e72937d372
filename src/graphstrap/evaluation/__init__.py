"""Named protocols that say how good embeddings are, and the linear probe that labels nodes."""
