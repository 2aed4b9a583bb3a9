"""Options that several benches share: a cluster's policy (a name or a file), queues and misfits."""

from collections.abc import Callable
from pathlib import Path

import click
import msgspec
import yaml
from click.shell_completion import CompletionItem

from allotment.core.config.policy import PolicyError, parse
from allotment.core.placement.policies import POLICIES
from allotment_cli.options import completion
from allotment_local.specs import DEFAULT_POLICY
from allotment_proto.facts import Policy

DEVICE_POLICY = "deviceshare.SchedulePolicy"

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


class PolicyWord(click.ParamType[str]):
    """A name of a device policy under local mode's configuration, or a file with another one."""

    name = "policy"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "NAME|FILE"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return completion.words(*sorted(POLICIES), files=True)(ctx, param, incomplete)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        policy_of(value, lambda message: self.fail(message, param, ctx))
        return value


def policy_of(word: str, fail: Callable[[str], object] | None = None) -> Policy:
    """The policy of a word that was accepted: local mode's own with a device policy of that name,
    or the file's.
    """
    try:
        text = _named(word) if word in POLICIES else Path(word).read_text(encoding="utf-8")
        policy = parse(text, word, Policy().scheduler_names).policy
        # These benches have no device plugin, which would be waited for without an end.
        return msgspec.structs.replace(policy, plugin_backlog=0)
    except (OSError, UnicodeDecodeError):
        message = f"{word!r} is neither one of {', '.join(sorted(POLICIES))} nor a readable file"
    except PolicyError as error:
        message = "; ".join(error.problems)
    if fail is not None:
        fail(message)
    raise ValueError(message)


def file_of(word: str, directory: Path) -> Path:
    """A scheduler configuration for services, of a word that was accepted: the file, or local
    mode's own in which the device policy is that one, written into `directory`.
    """
    if word not in POLICIES:
        return Path(word)
    written = directory / f"{word}.conf"
    written.write_text(_named(word), encoding="utf-8")
    return written


def _named(word: str) -> str:
    """Local mode's configuration, which has all five actions, with a device policy of that name."""
    found = yaml.safe_load(DEFAULT_POLICY.read_text(encoding="utf-8"))
    plugins = [plugin for tier in found["tiers"] for plugin in tier["plugins"]]
    (deviceshare,) = (plugin for plugin in plugins if plugin["name"] == "deviceshare")
    deviceshare["arguments"][DEVICE_POLICY] = word
    return yaml.safe_dump(found, sort_keys=False)
