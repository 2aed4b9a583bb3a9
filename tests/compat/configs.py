"""Device configurations of vectors: a few texts, named by hundreds of vectors."""

from functools import lru_cache

from allotment_proto.volcano import device_config

TEXTS_REMEMBERED = 64


@lru_cache(maxsize=TEXTS_REMEMBERED)
def parse(text: str) -> device_config.Parsed:
    """The configuration in a text, or what is wrong with it."""
    return device_config.parse(text, "config")
