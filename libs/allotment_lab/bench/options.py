"""Options that several benches share: what real clusters have."""

import click

queues_option = click.option(
    "--queues",
    default=10,
    show_default=True,
    type=click.IntRange(0, 10_000),
    help="How many queues the pods are in; 0: the cluster has none.",
)
misfits_option = click.option(
    "--misfits",
    default=1,
    show_default=True,
    type=click.IntRange(0, 50),
    help="How many pods of a hundred ask for more cards than any node has.",
)
