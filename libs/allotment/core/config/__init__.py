"""`volcano-scheduler.conf` → `Policy`, and what a policy says about plugins.

`document` is YAML with places, `known` the words, `report` what is said about mistakes; `plugins`,
`sections`, `devices`, `own` and `named` read the parts, `checks` their combination. `uses` answers
questions to a policy that was read.
"""

from allotment.core.config.uses import (
    argument,
    by_prefix,
    configuration,
    flag,
    is_on,
    number,
    plugin,
)

__all__ = ["argument", "by_prefix", "configuration", "flag", "is_on", "number", "plugin"]
