"""The allocation log on NATS JetStream, and all else that talks to NATS.

Followers doubt. A consumer's heartbeats say that it lives, not that it delivers. So a follower
asks the stream's leader once a second where the log ends, leaves a consumer that brings nothing
of what is due for 2 s, and its server when the next consumer brings nothing either
(`adapters/log/follow.py`). The same look gives the lag that `/readyz` tells, in records and in
seconds. A server that leaves JetStream's questions unanswered for 5 s, because it is cut off
from its cluster, is left for another (`adapters/log/nats_watchdog.py`).

Long logs. A service starts from its newest snapshot, if it has one, and folds the rest. A
snapshot names the record it stands on by its digest and is left aside where the log has another
one there (it was restored, or cut short, and has grown again); a follower compares in the same
way whenever it restarts. A service writes one every 200,000 events and when it stops. While
it catches up there is no garbage collection (a fold makes no cycles and keeps nearly all it
makes), and what it holds then is frozen, so that no later collection walks through it. Structs
of events and facts take no part in garbage collection at all (`gc=False`). The books are
checked in full when the fold has caught up, and after that one node every 20 records, in turn.
The watcher reads its first list page by page and keeps facts instead of whole pods (a policy or
device configuration that reads them otherwise makes it list again), and what it reported shares
the fact objects with the fold. The CLI keeps what it read in `$XDG_CACHE_HOME/allotment`, by the
identity of the log: the records in stretches, of each stretch whom they concern (`kept.py`), and
states every 20,000 events or more. So a question about a pod folds from the nearest state before
its records, and reads only these. `tests/model.py`
keeps a plain list of shares with arithmetic of its own; property tests hold the fold's holders
and free amounts equal to it (`tests/picture.py`) at every sequence.
"""
