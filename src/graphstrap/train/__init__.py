"""Training: one loop for every method, one model or many."""
