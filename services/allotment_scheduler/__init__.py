"""The scheduler as one process: watcher, filter, scorer and binder with one connection to NATS, one
lease and one fold of the log. It is for small clusters and laptops; elsewhere each is a service.

The services are the same and do not know that they share a process. What they say to each other
is handed over in memory; the log stays on NATS and is the only truth. The price: all of it runs on
one core, one crash ends all of it, and one user of NATS writes facts as well as decisions.
"""
