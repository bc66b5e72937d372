"""The laboratory: what measures Graphstrap and reproduces the paper, apart from the product."""
