"""Feature blocks: whatever form they are kept in, the same numbers come out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

from graphstrap.errors import InputError
from graphstrap.graph.blocks import (
    Block,
    QuantisedMatrix,
    ScaledMatrix,
    SparseMatrix,
    block_tensors,
    readable,
)
from graphstrap.graph.graph import as_features


def test_sparse_features_come_back() -> None:
    matrix = scipy.sparse.random(8, 5, 0.4, format="csr", random_state=0, dtype=np.float32)
    features = as_features(matrix)
    assert features is not None
    assert not isinstance(features, torch.Tensor)
    dense = torch.from_numpy(matrix.toarray())
    assert torch.equal(features.to_dense(), dense)
    assert torch.equal(features.transpose.to_dense(), dense.T)
    assert (features.to_scipy() != matrix).nnz == 0


def test_a_row_of_numbers_is_no_table() -> None:
    with pytest.raises(InputError, match="a row of numbers for each node"):
        as_features([1.0, 2.0])


def test_every_form_is_readable_and_says_what_it_is_kept_as() -> None:
    x = torch.tensor([[0.0, 3.0], [1.0, 0.0], [2.0, 1.5]])
    sparse, quantised = SparseMatrix.from_scipy(scipy.sparse.csr_matrix(x.numpy())), QuantisedMatrix.from_dense(x)
    forms: list[tuple[Block | None, list[torch.Tensor]]] = [
        (x, [x]),
        (sparse, [sparse.indptr, sparse.indices, sparse.values]),
        (quantised, [quantised.codes, quantised.scale, quantised.offset]),
        (ScaledMatrix(x, "none"), [x]),
        (None, []),
    ]
    for block, kept in forms:
        found = readable(block)
        assert (found is None) == (block is None)
        if found is not None:
            torch.testing.assert_close(
                found if isinstance(found, torch.Tensor) else found.to_dense(), x, atol=0.01, rtol=0
            )
        if isinstance(block, SparseMatrix):
            assert len(block.rows)  # made when it is asked for, and no part of what is kept
        assert all(a is b for a, b in zip(block_tensors(block), kept, strict=True))
