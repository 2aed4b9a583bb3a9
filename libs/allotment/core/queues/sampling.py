"""How many nodes that fit are enough to choose from, for those who do not want to look at all.

Volcano stops looking once it has found that many; the best node may then be missed.
"""

_ALL_BELOW = 100
_PERCENT_MOST = 50
_PERCENT_LEAST = 5
_NODES_A_PERCENT = 125


def enough_nodes(nodes: int) -> int:
    """After how many fitting nodes the search may stop: the more nodes, the fewer per cent."""
    if nodes <= _ALL_BELOW:
        return nodes
    percent = max(_PERCENT_MOST - nodes // _NODES_A_PERCENT, _PERCENT_LEAST)
    return max(nodes * percent // 100, _ALL_BELOW)
