"""The chain of digests over the log: each record's head covers all records before it.

    H(0) = 32 zero bytes
    H(n) = SHA-256(H(n-1) | sequence, 8 bytes big-endian | subject | one zero byte | payload)

So one altered, missing, added or swapped record changes every later head, and a head that is kept
elsewhere (in an archive, a ConfigMap, a decision) shows it. An alteration of the log and of every
copy of its heads does not show.
"""

import hashlib

from allotment.core.logport import Record

START = bytes(32)


def linked(head: bytes, record: Record) -> bytes:
    """The head at `record`, which follows the record with the head `head`."""
    found = hashlib.sha256(head)
    found.update(record.seq.to_bytes(8, "big"))
    found.update(record.subject.encode())
    found.update(b"\0")
    found.update(record.payload)
    return found.digest()
