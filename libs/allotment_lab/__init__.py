"""The lab: what another policy would have made of a workload, and how fast this machine decides.

Workloads are driven through the core in virtual time: `workload` says what a workload is, `openb`
and `bundle` read recorded ones from text and records, `tuning` draws the published experiment's
arrivals, `engine` schedules them with the core that the services run, and `measures` says how full
and how fragmented the cluster became. `simulate/` and `bench/` are the commands `allot simulate`
and `allot bench`. Nothing that runs a cluster imports the lab.
"""
