"""Named protocols that say how good embeddings are, and the linear probe that labels nodes.

>>> print(evaluate(h, graph, protocol="paper"))         # doctest: +SKIP
accuracy 92.95 ± 0.50 (paper: fit on 10 %, C chosen on 10 %, tested on 80 %, 5 random splits)
"""
