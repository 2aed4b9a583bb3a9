"""Logs, metrics, traces, and the refusals that they count.

One object harms only itself. Each door turns whatever one object does to it into a refusal of
that object, counted by door and kind (`allot_refused_total`), named in the log at a bounded
rate and, while it stands, on `/readyz` (`adapters/telemetry/refusals.py`); the service stays
ready and all other objects are processed. Doors are Kubernetes lists and watches (a page that
cannot be decoded as a whole is taken apart at its brackets, without recursion: `kube/wire.py`),
messages on NATS (bounded as they are decoded by what a record can hold), leases (what is no
claim is written over), the log (read before it is written, so that no fact takes others with
it) and answers of the API server. An unreadable pod is recorded with its problem; if it runs and
was never read, its node's cards take nothing new. Groups and queues stay as they were last
read. Should a handler of the fold raise, which none is known to do, the event is skipped
where it failed (`state.apply_record`): that depends on the state and the event alone, so all
services agree, and the books are checked before anything is decided on them.
"""
