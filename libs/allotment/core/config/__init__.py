"""`volcano-scheduler.conf` → `Policy`.

What others may use:

* `policy`: a configuration's text read, with the place of every mistake.
* `known`: the words of such a text.
* `report`: what is said about mistakes, and the name that was probably meant.

Inner: `document` is YAML with places; `plugins`, `sections`, `devices`, `own` and `named` read the
parts, `checks` their combination.
"""
