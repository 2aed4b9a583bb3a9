"""Hypothesis strategies for the domain's values: small worlds, where things collide often.

`node` makes nodes and their cards, `request` what pods ask for, `policy` policies, and `life` pods,
events and whole histories.
"""

from tests.strategies.life import PODS, events, holdings, lives, names, pods
from tests.strategies.node import MIG_TABLE, MODELS, NODES, SMALL_TABLE, cards, nodes
from tests.strategies.policy import every_policy, policies, terms_policies
from tests.strategies.request import TAGS, every_request

__all__ = [
    "MIG_TABLE",
    "MODELS",
    "NODES",
    "PODS",
    "SMALL_TABLE",
    "TAGS",
    "cards",
    "events",
    "every_policy",
    "every_request",
    "holdings",
    "lives",
    "names",
    "nodes",
    "pods",
    "policies",
    "terms_policies",
]
