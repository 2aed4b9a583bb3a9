"""Who may do what on NATS: a user for each service, proved by a key, with rights by subject.

The rights are the shipped `deploy/nats/authorization.conf`, which is made here (``python -m
allotment.adapters.log.nats_users``); local mode gives its server the same text. The server knows
public keys only. Each service has its seed in a file that nobody else can read.

What is not granted is refused. So nobody can delete or purge the log or change a record of it, and
nobody but the binder can append a decision; an administrator's key can change the log's settings.
Answers go to an inbox of each user's own. Names of consumers are random and nobody can list them,
so nobody can delete or pause another's.
"""

import secrets
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import nkeys

from allotment.adapters.log import lease
from allotment_proto import subjects

READER = "reader"
"""The command line: reads the log, and may ask the watcher to list again."""
MAKER = "watcher"
"""The one service that makes the log: it knows whether there was one."""
INSPECTOR = "inspector"
"""The web pages and the traces that are made of the log: all that they do on NATS is to read it."""
ADMIN = "admin"
"""An administrator: saves and restores the log, and changes how large it may get."""
_SEED_BYTES = 32
_READS = (
    "$JS.API.STREAM.INFO.{stream}",
    "$JS.API.STREAM.MSG.GET.{stream}",
    "$JS.API.CONSUMER.CREATE.{stream}.*",
    "$JS.API.CONSUMER.INFO.{stream}.*",
    "$JS.API.CONSUMER.DELETE.{stream}.*",
    "$JS.FC.{stream}.>",
)
_COMPETES = (
    "$JS.API.STREAM.CREATE.{stream}",
    "$JS.API.STREAM.INFO.{stream}",
    "$JS.API.STREAM.MSG.GET.{stream}",
)
_ADMINISTERS = (
    "$JS.API.STREAM.UPDATE.{stream}",
    "$JS.API.STREAM.SNAPSHOT.{stream}",
    "$JS.SNAPSHOT.ACK.{stream}.>",
    "$JS.API.STREAM.RESTORE.{stream}",
    "$JS.SNAPSHOT.RESTORE.{stream}.>",
)
_FACTS = (
    f"{subjects.NODE}*",
    f"{subjects.POD}*",
    f"{subjects.GROUP}*.*",
    f"{subjects.QUEUE}*",
    f"{subjects.CLASS}*",
    subjects.CONFIG,
    subjects.TIME,
    subjects.FACTS,
)


class Rights(NamedTuple):
    """What a service says and hears beside what all services do."""

    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()


SERVICES: Mapping[str, Rights] = {
    "watcher": Rights(publish=_FACTS, subscribe=(subjects.LIST_AGAIN,)),
    "filter": Rights(publish=(subjects.FEASIBLE,), subscribe=(subjects.SETTLED,)),
    "scorer": Rights(publish=(subjects.PROPOSAL,), subscribe=(subjects.FEASIBLE,)),
    "binder": Rights(
        publish=(subjects.DECISION, subjects.OUTCOME, subjects.SETTLED),
        subscribe=(subjects.PROPOSAL,),
    ),
    "controller": Rights(),
}
USERS = (*SERVICES, INSPECTOR, READER, ADMIN)


def inbox_of(user: str) -> str:
    """The prefix of a user's inboxes: nobody else may listen there."""
    return f"_INBOX_{user}"


PUBLIC_KEYS = Path("public") / "keys.conf"
SEED = "nats.nk"


class Key(NamedTuple):
    """The key of a user. The seed is the secret."""

    public: str
    seed: str


def new_keys() -> dict[str, Key]:
    """A key for every user."""
    return {user: _key_of(secrets.token_bytes(_SEED_BYTES)) for user in USERS}


def _key_of(dice: bytes) -> Key:
    seed = bytes(nkeys.encode_seed(dice, nkeys.PREFIX_BYTE_USER))
    return Key(nkeys.from_seed(bytearray(seed)).public_key.decode(), seed.decode())


def seed_file(directory: Path, user: str) -> Path:
    """Where `write_keys` puts the seed of a user."""
    return directory / user / SEED


def write_keys(directory: Path) -> Path:
    """Make new keys: a directory and a seed for each user, closed to others, and the public keys.

    Returns the file with the public keys. Raises OSError.
    """
    keys = new_keys()
    for user, key in keys.items():
        _write(seed_file(directory, user), key.seed, 0o600)
    public = directory / PUBLIC_KEYS
    _write(public, keys_conf(keys), 0o644)
    return public


def _write(path: Path, text: str, mode: int) -> None:
    """Replace a file in one step; nobody else can ever read a seed."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.touch(mode=mode)
    temporary.write_text(text)
    temporary.replace(path)


def variable_of(user: str) -> str:
    """The name under which the server's configuration knows a user's public key."""
    return f"ALLOT_{user.upper()}_NKEY"


def keys_conf(keys: Mapping[str, Key]) -> str:
    """The public keys as definitions for the server's configuration."""
    return "".join(f"{variable_of(user)}: {keys[user].public}\n" for user in USERS)


def authorization_conf(keys: str = 'include "keys/keys.conf"') -> str:
    """The users and their rights; `keys` defines the public keys."""
    users = "\n".join(_user(user, *_rights_of(user)) for user in USERS)
    return f"""# Made by: python -m allotment.adapters.log.nats_users
# Who may do what on NATS; what is not listed is refused. The public keys are made by
# `allot nats-users`, the seeds are the services' own.

{keys}

authorization {{
  users: [
{users}
  ]
}}
"""


def _rights_of(user: str) -> tuple[list[str], list[str]]:
    inbox = f"{inbox_of(user)}.>"
    log = [subject.format(stream=subjects.STREAM) for subject in _READS]
    if user == READER:
        return [*log, subjects.LIST_AGAIN], [inbox]
    if user == INSPECTOR:
        return log, [inbox]
    if user == ADMIN:
        return [*log, *(s.format(stream=subjects.STREAM) for s in _ADMINISTERS)], [inbox]
    own = f"{lease.PREFIX}{user}"
    rights = SERVICES[user]
    makes = [f"$JS.API.STREAM.CREATE.{subjects.STREAM}"] if user == MAKER else []
    publish = [
        *rights.publish,
        own,
        *makes,
        *log,
        *(subject.format(stream=lease.STREAM) for subject in _COMPETES),
    ]
    return publish, [*rights.subscribe, own, inbox]


def _user(user: str, publish: Iterable[str], subscribe: Iterable[str]) -> str:
    return f"""    {{ # {user}
      nkey: ${variable_of(user)}
      permissions: {{
        publish: {{ allow: [
{_listed(publish)}
        ] }}
        subscribe: {{ allow: [
{_listed(subscribe)}
        ] }}
      }}
    }}"""


def _listed(names: Iterable[str]) -> str:
    return "\n".join(f"          {msgspec.json.encode(name).decode()}" for name in names)


def main() -> None:
    """Write the shipped file anew."""
    path = Path(__file__).resolve().parents[4] / "deploy" / "nats" / "authorization.conf"
    path.write_text(authorization_conf(), encoding="utf-8")
    sys.stdout.write(f"{path} written\n")


if __name__ == "__main__":
    main()
