"""Determinism, enforced: the core under traps, other hash seeds and other Python versions.

`digests` is what is run again and again, and `make test-strict` runs all of it. The tests here run
what takes seconds.
"""
