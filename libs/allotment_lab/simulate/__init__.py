"""`allot simulate`: recorded and made-up workloads on made-up clusters, through the real core."""
