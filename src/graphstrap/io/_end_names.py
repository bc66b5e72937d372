"""The names of the two id columns of an edges table: which are usual, and which sound like ids of two kinds.

`userId` and `movieId` may both count from 1, and then user 5 and film 5 are one node; `source` and `target`, or
`node_1` and `node_2`, are ids of the same nodes.
"""

from __future__ import annotations

import re

# What is looked for where the options name neither column, the first pair that a table has winning.
USUAL_ENDS = (("source", "target"), ("src", "dst"), ("from", "to"))
_PAIRS = {
    *map(frozenset, USUAL_ENDS),
    *map(frozenset, (("src", "dest"), ("origin", "destination"), ("start", "end"), ("head", "tail"), ("in", "out"))),
    *map(frozenset, (("parent", "child"), ("citing", "cited"), ("sender", "receiver"), ("caller", "callee"))),
    *map(frozenset, (("follower", "followee"), ("subject", "object"), ("first", "second"), ("left", "right"))),
}
_WORD = r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+|\d+"


def sound_like_two_kinds(source: str, target: str) -> bool:
    """Whether the two names differ in more than a number, a letter, or a usual pair of words."""
    one, other = _words(source), _words(target)
    one, other = one - other, other - one
    if all(len(word) == 1 or word.isdigit() for word in one | other):
        return False
    return one | other not in _PAIRS


def _words(name: str) -> frozenset[str]:
    """`userId` and `user_ids` to `user`."""
    words = (re.sub(r"ids?$", "", word.lower()) for word in re.findall(_WORD, name))
    return frozenset(word for word in words if word)
