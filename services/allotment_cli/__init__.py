"""The `allot` command: a room for each group of commands; `main.py` has the table of them all.

`demo`, then `act` and `setup`, then `read` and `plan`, then what they share: `options`,
`show`. A room imports only from rooms after it in this list.
"""
