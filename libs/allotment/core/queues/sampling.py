"""How many nodes that fit are enough to choose from, for those who do not want to look at all.

Volcano stops looking once it has found that many; the best node may then be missed.
"""

ALL_BELOW = 100
PERCENT_MOST = 50
PERCENT_LEAST = 5
NODES_A_PERCENT = 125


def enough_nodes(nodes: int) -> int:
    """After how many fitting nodes the search may stop: the more nodes, the fewer per cent."""
    if nodes <= ALL_BELOW:
        return nodes
    percent = max(PERCENT_MOST - nodes // NODES_A_PERCENT, PERCENT_LEAST)
    return max(nodes * percent // 100, ALL_BELOW)
