"""Groups whose commands are imported only when they are called: start-up stays short."""

import importlib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import click
from click.shell_completion import CompletionItem

from allotment.core.errors import AllotError

Commands = Mapping[str, tuple[str, str, str]]
"""Command name → (module, attribute, help in one line)."""


class LazyGroup(click.Group):
    """A group of commands, each in a module of its own, and other names for some of them."""

    def __init__(
        self, commands: Commands, aliases: Mapping[str, str] | None = None, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self._lazy = commands
        self._aliases = aliases or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        known = self._lazy.get(self._aliases.get(cmd_name, cmd_name))
        if known is None:
            return None
        module, name, _ = known
        try:
            command: click.Command = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name not in ("numpy", "numba"):
                raise
            raise AllotError(
                f"allot {cmd_name} needs {error.name}, which is not installed",
                "pip install 'allotment[fast]'",
            ) from error
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            if ctx.resilient_parsing:  # for the Tab key: nothing completes an unknown command
                return name, click.Command(name), args[1:]
            close = self.near(name)
            hint = f"Did you mean {close!r}?" if close else f"One of: {', '.join(self._lazy)}."
            ctx.fail(f"No such command {name!r}. {hint}")
        return super().resolve_command(ctx, args)

    def near(self, name: str) -> str:
        """The command that a mistyped name is nearest to; empty if it is near to none."""
        close = get_close_matches(name, [*self._lazy, *self._aliases], n=1)
        return self._aliases.get(close[0], close[0]) if close else ""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in self._lazy.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names and help from the table: nothing is imported for a completion."""
        found = [
            CompletionItem(name, help=text)
            for name, (_, _, text) in self._lazy.items()
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


class KindGroup(LazyGroup):
    """A group whose commands are kinds of objects: `po/NAME` is `po NAME`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        first, *rest = args
        kind, slash, name = first.partition("/")
        if slash and self.get_command(ctx, kind) is not None:
            args = [kind, name, *rest]
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Kinds; after a kind and a slash its names."""
        kind, slash, begun = incomplete.partition("/")
        command = self.get_command(ctx, kind) if slash else None
        if command is None:
            return super().shell_complete(ctx, incomplete)
        names = next(param for param in command.params if isinstance(param, click.Argument))
        found = names.shell_complete(ctx, begun)
        return [CompletionItem(f"{kind}/{item.value}") for item in found]
