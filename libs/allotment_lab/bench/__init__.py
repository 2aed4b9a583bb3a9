"""`allot bench`: measure this machine, each bench in a module of its own."""

from allotment_cli.options.lazy import LazyGroup

bench = LazyGroup(
    {
        "core": ("allotment_lab.bench.core", "core", "Decisions of one core, under churn."),
        "batch": (
            "allotment_lab.bench.batch",
            "batch",
            "Cycles over queues and groups, most of which only run.",
        ),
        "full": ("allotment_lab.bench.full", "full", "A full cluster on which pods wait."),
        "grow": ("allotment_lab.bench.grow", "grow", "How the cost of a pod grows."),
        "pipeline": (
            "allotment_lab.bench.pipeline",
            "pipeline",
            "Facts in the log to decisions in the log: three services and NATS.",
        ),
        "loops": (
            "allotment_lab.bench.loops",
            "loops",
            "How long event loops are blocked during the search for victims.",
        ),
        "e2e": (
            "allotment_lab.bench.e2e.command",
            "e2e",
            "Pods created to pods bound at an API server.",
        ),
        "replay": ("allotment_lab.bench.replay", "replay", "The log folded again, and starts."),
        "watch": ("allotment_lab.bench.watch", "watch", "A large cluster listed and folded."),
    },
    name="bench",
    help="Measure this machine. Compare only what was measured on one machine, in one sitting.",
)
