"""`allot simulate`: recorded and synthetic workloads on simulated clusters, by the real core."""
