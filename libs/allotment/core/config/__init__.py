"""`volcano-scheduler.conf` → `Policy`.

`policy.parse` is the door. `document` is YAML with places, `report` what is said about mistakes;
`plugins`, `sections`, `devices`, `own` and `named` read the parts, `checks` their combination.
"""
