"""Commands that read the log, or compare it with the cluster, and change nothing."""
