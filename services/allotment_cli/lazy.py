"""Groups whose commands are imported only when they are called: start-up stays short."""

import importlib
from collections.abc import Mapping
from typing import Any

import click

Commands = Mapping[str, tuple[str, str, str]]
"""Command name → (module, attribute, help in one line)."""


class LazyGroup(click.Group):
    """A group of commands, each in a module of its own."""

    def __init__(self, commands: Commands, **settings: Any) -> None:
        super().__init__(**settings)
        self._lazy = commands

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return None
        module, name, _ = self._lazy[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in self._lazy.items()])
