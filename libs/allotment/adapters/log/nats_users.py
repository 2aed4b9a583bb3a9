"""Who may do what on NATS: an account for each user, proved by a key, with rights by subject.

The rights are the shipped `deploy/nats/authorization.conf`, which is made here (``python -m
allotment.adapters.log.nats_users``); local mode gives its server the same text. The server knows
public keys only. Each service has its seed in a file that only it can read.

Rights by subject do not suffice. A server answers a question on whatever reply subject the question
names, and delivers a consumer's records to whatever subject the consumer names, past the rights of
the user that asked. So each user has an account of its own, which is a space of subjects of its
own, and two more hold the streams: one the log, one the leases. No user connects to them, except
that an administrator, who may restore the log, is a user of the log's account. A user's account
imports what it may append and ask, by exact subject. The server maps the reply of an imported
question into the account that asked, and what a consumer of the log delivers can leave the log's
account only to an inbox, whose name no other user knows.

A stream has a limited number of consumers, and the server keeps as much for each as its creator
asks for. So only the services that fold the log may make one. All others ask for records.
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
SCHEDULER = "scheduler"
"""Watcher, filter, scorer and binder as one process; a cluster that runs them apart does not use
its key."""
INSPECTOR = "inspector"
"""The web pages and the traces that are made of the log: all that they do on NATS is to read it."""
ARCHIVER = "archiver"
"""Copies closed segments of the log to an archive, and alone removes what is there from the log."""
ADMIN = "admin"
"""An administrator: saves and restores the log, changes how large it may get, and has its segments
closed."""
_SEED_BYTES = 32
_LOG = "LOG"
_LEASES = "LEASES"
"""The accounts that hold the streams."""
_READS = (
    f"$JS.API.STREAM.INFO.{subjects.STREAM}",
    f"$JS.API.STREAM.MSG.GET.{subjects.STREAM}",
)
_FOLLOWS = (f"$JS.API.CONSUMER.CREATE.{subjects.STREAM}.*", f"$JS.FC.{subjects.STREAM}.>")
_ADMINISTERS = (
    f"$JS.API.CONSUMER.NAMES.{subjects.STREAM}",
    f"$JS.API.CONSUMER.LIST.{subjects.STREAM}",
    f"$JS.API.CONSUMER.INFO.{subjects.STREAM}.*",
    f"$JS.API.CONSUMER.DELETE.{subjects.STREAM}.*",
    f"$JS.API.STREAM.UPDATE.{subjects.STREAM}",
    f"$JS.API.STREAM.SNAPSHOT.{subjects.STREAM}",
    f"$JS.SNAPSHOT.ACK.{subjects.STREAM}.>",
    f"$JS.API.STREAM.RESTORE.{subjects.STREAM}",
    f"$JS.SNAPSHOT.RESTORE.{subjects.STREAM}.>",
    f"$JS.API.STREAM.CREATE.{subjects.STREAM}",
    f"$JS.API.STREAM.PURGE.{subjects.STREAM}",
    subjects.LOG_ALL,  # to restore it from an archive
)
_SEES_LEASES = f"$JS.API.STREAM.MSG.GET.{lease.STREAM}"
_COMPETES = (
    f"$JS.API.STREAM.CREATE.{lease.STREAM}",
    f"$JS.API.STREAM.INFO.{lease.STREAM}",
    _SEES_LEASES,
)
_SEES_STORAGE = "$JS.API.INFO"
"""How much the log's account takes and may take."""
_MAKES = (f"$JS.API.STREAM.CREATE.{subjects.STREAM}",)
_DROPS = (f"$JS.API.STREAM.PURGE.{subjects.STREAM}",)
_API, _LOCAL_API = "$JS.API.", "allot.api."
_LEASE_BYTES_MAX = 64 * 1024 * 1024
CONNECTIONS_MAX = 100
"""How many connections a user may have, each of which costs a server memory."""
QUESTION_BYTES_MAX = 4096
"""The largest message of a user who only asks: servers keep those that they have not looked at."""
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
_DECIDES = (subjects.DECISION, subjects.OUTCOME, subjects.SEGMENT, subjects.CHECKPOINT)


_WANTED = (subjects.CLOSE, subjects.RAISE)
"""What an administrator asks a binder for: a segment closed, the level raised."""


class Rights(NamedTuple):
    """What a user does in addition to reading the log."""

    appends: tuple[str, ...] = ()
    """Subjects of the log."""
    makes: bool = False
    """The log: only a watcher knows whether there was one."""
    drops: bool = False
    """Records of the log, from its beginning."""
    sends: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """A subject, and who receives it."""
    closes: bool = False
    """Hears what an administrator wants of the log: see `_WANTED`."""
    follows: bool = True
    """Whether it may have consumers on the log; otherwise it asks for records."""
    competes: bool = True
    """For a lease, with the other replicas of the same service."""


SERVICES: Mapping[str, Rights] = {
    "watcher": Rights(appends=_FACTS, makes=True),
    "filter": Rights(sends=((subjects.FEASIBLE, ("scorer",)),)),
    "scorer": Rights(sends=((subjects.PROPOSAL, ("binder",)),)),
    "binder": Rights(appends=_DECIDES, sends=((subjects.SETTLED, ("filter",)),), closes=True),
    "controller": Rights(follows=False),
    ARCHIVER: Rights(appends=(subjects.ARCHIVE,), drops=True),
    SCHEDULER: Rights(appends=(*_FACTS, *_DECIDES), makes=True, closes=True),
}
_RIGHTS: Mapping[str, Rights] = {
    **SERVICES,
    INSPECTOR: Rights(follows=False, competes=False),
    READER: Rights(
        sends=((subjects.LIST_AGAIN, ("watcher", SCHEDULER)),), follows=False, competes=False
    ),
}
USERS = (*_RIGHTS, ADMIN)


def inbox_of(user: str) -> str:
    """The prefix of a user's inboxes: no other user may subscribe there."""
    return f"_INBOX_{user}"


PUBLIC_KEYS = Path("public") / "keys.conf"
SEED = "nats.nk"
NAMESPACE = "allotment-system"
"""Where a cluster keeps the users' Secrets, unless it was installed elsewhere."""


def secret_of(user: str) -> str:
    """The name of the Secret with a user's seed."""
    return f"allotment-nats-{user}"


class Key(NamedTuple):
    """The key of a user. The seed is the secret."""

    public: str
    seed: str

    @staticmethod
    def of(seed: str) -> "Key":
        """The key with this seed. Raises ValueError for a text that is none."""
        try:
            return Key(nkeys.from_seed(bytearray(seed.encode())).public_key.decode(), seed)
        except nkeys.NkeysError as error:
            raise ValueError("not the seed of a NATS key") from error


def new_keys() -> dict[str, Key]:
    """A key for every user."""
    return {user: new_key() for user in USERS}


def new_key() -> Key:
    """A key for one user."""
    dice = secrets.token_bytes(_SEED_BYTES)
    return Key.of(bytes(nkeys.encode_seed(dice, nkeys.PREFIX_BYTE_USER)).decode())


def seed_file(directory: Path, user: str) -> Path:
    """Where `write_keys` puts the seed of a user."""
    return directory / user / SEED


def write_keys(directory: Path) -> Path:
    """Make new keys: a directory and a seed for each user, closed to others, and the public keys.

    Returns the file with the public keys. Raises OSError.
    """
    keys = new_keys()
    for user, key in keys.items():
        write_closed(seed_file(directory, user), key.seed, 0o600)
    public = directory / PUBLIC_KEYS
    write_closed(public, keys_conf(keys), 0o644)
    return public


def write_closed(path: Path, text: str, mode: int) -> None:
    """Replace a file in one step; who may not read it by `mode` never can."""
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
    return public_conf({user: keys[user].public for user in USERS})


def public_conf(keys: Mapping[str, str]) -> str:
    """The same of public keys."""
    return "".join(f"{variable_of(user)}: {public}\n" for user, public in keys.items())


def public_keys(conf: str) -> dict[str, str]:
    """The public keys in a text of `keys_conf`, by user, without users of other releases."""
    defined = dict(line.split(": ", 1) for line in conf.splitlines() if ": " in line)
    return {user: defined[variable_of(user)] for user in USERS if variable_of(user) in defined}


def account_of(user: str) -> str:
    """The account of a user, which is the user's alone; an administrator's is the log's."""
    return _LOG if user == ADMIN else user.upper()


def authorization_conf(keys: str = 'include "keys/keys.conf"') -> str:
    """The accounts with their exports, imports and users. `keys` defines the public keys."""
    accounts = "\n".join((_log_account(), _leases_account(), *map(_account, _RIGHTS)))
    return f"""# Made by: python -m allotment.adapters.log.nats_users
# Who may do what on NATS; what is not listed is refused. Each user has an account, and an account's
# subjects are its own. LOG and LEASES hold the streams; only the administrator is a user there.
# The public keys are made by `allot nats-setup`, the seeds are the services' own.

{keys}

accounts {{
{accounts}
}}
"""


def _log_account() -> str:
    services: dict[str, list[str]] = {}
    for user in _RIGHTS:
        for subject in _of_log(user):
            services.setdefault(subject, []).append(user)
    exports = [_export("service", subject, users) for subject, users in services.items()]
    followers = [user for user in _RIGHTS if _RIGHTS[user].follows]
    exports += [_export("stream", f"{inbox_of(user)}.>", [user]) for user in followers]
    closers = [user for user in _RIGHTS if _RIGHTS[user].closes]
    exports += [_export("stream", subject, closers) for subject in _WANTED]
    asks = [*_READS, *_ADMINISTERS, *_WANTED]
    admin = _user(ADMIN, asks, [f"{inbox_of(ADMIN)}.>"])
    return _account_text(_LOG, f"    jetstream: enabled\n{admin}", exports=exports)


def _leases_account() -> str:
    competitors = [user for user in _RIGHTS if _RIGHTS[user].competes]
    exports = [
        _export("service", subject, [user for user in _RIGHTS if subject in _of_leases(user)])
        for subject in _COMPETES
    ]
    exports += [_export("service", _lease_of(user), [user]) for user in competitors]
    limits = f"    jetstream: {{max_mem: 0, max_file: {_LEASE_BYTES_MAX}, max_streams: 1}}"
    return _account_text(_LEASES, limits, exports=exports)


def _account(user: str) -> str:
    """The account of a user: the user and its rights, what comes in and what goes out."""
    rights, inbox = _RIGHTS[user], f"{inbox_of(user)}.>"
    received = [
        (subject, sender)
        for sender in _RIGHTS
        for subject, receivers in _RIGHTS[sender].sends
        if user in receivers
    ]
    asked = [*_of_log(user)]
    imports = [_import("service", _LOG, subject, _inside(subject)) for subject in asked]
    if rights.follows:
        imports.append(_import("stream", _LOG, inbox))
    if rights.closes:
        imports += [_import("stream", _LOG, subject) for subject in _WANTED]
        received += [(subject, ADMIN) for subject in _WANTED]
    publish = [*_of_log(user), *(subject for subject, _ in rights.sends)]
    subscribe = [*(subject for subject, _ in received), inbox]
    of_leases = _of_leases(user)
    imports += [_import("service", _LEASES, subject, _inside(subject)) for subject in of_leases]
    asked += of_leases
    publish += of_leases
    if rights.competes:
        subscribe.append(_lease_of(user))  # of the other replicas, within the account
    imports += [
        _import("stream", account_of(sender), subject)
        for subject, sender in received
        if sender != ADMIN
    ]
    exports = [_export("stream", subject, receivers) for subject, receivers in rights.sends]
    limits = [f"max_connections: {CONNECTIONS_MAX}"]
    if user not in SERVICES:
        limits.append(f"max_payload: {QUESTION_BYTES_MAX}")
    text = f"    limits: {{{', '.join(limits)}}}\n{_user(user, map(_inside, publish), subscribe)}"
    rows = [
        f"{_quoted(subject)}: {_quoted(_inside(subject).replace('*', '$1').replace('>', '$2'))}"
        for subject in asked
        if _inside(subject) != subject
    ]
    text += f"\n    mappings: {{\n{_listed(rows, 6)}\n    }}"
    return _account_text(account_of(user), text, exports=exports, imports=imports)


def _user(user: str, publish: Iterable[str], subscribe: Iterable[str]) -> str:
    return f"""    users: [{{
      nkey: ${variable_of(user)}
      permissions: {{
        publish: {{ allow: [
{_listed(map(_quoted, publish), 10)}
        ] }}
        subscribe: {{ allow: [
{_listed(map(_quoted, subscribe), 10)}
        ] }}
      }}
    }}]"""


def _inside(subject: str) -> str:
    """What an imported question is called within the account that asks: each account's `$JS.API.>`
    goes to JetStream of its own, which these accounts have none of, so it is mapped to this.
    """
    return subject.replace(_API, _LOCAL_API)


def _of_log(user: str) -> tuple[str, ...]:
    """What a user may say to the log's account."""
    rights = _RIGHTS[user]
    makes, follows = _MAKES if rights.makes else (), _FOLLOWS if rights.follows else ()
    drops = _DROPS if rights.drops else ()
    storage = (_SEES_STORAGE,) if user == READER else ()
    return (*rights.appends, *makes, *drops, *storage, *_READS, *follows)


def _of_leases(user: str) -> tuple[str, ...]:
    """What a user may say to the leases' account: readers see who is active."""
    if _RIGHTS[user].competes:
        return (*_COMPETES, _lease_of(user))
    return (_SEES_LEASES,) if user in (INSPECTOR, READER) else ()


def _lease_of(user: str) -> str:
    return f"{lease.PREFIX}{user}"


def _export(kind: str, subject: str, users: Iterable[str]) -> str:
    accounts = ", ".join(map(account_of, users))
    return f"{{{kind}: {_quoted(subject)}, accounts: [{accounts}]}}"


def _import(kind: str, account: str, subject: str, to: str = "") -> str:
    named = f", to: {_quoted(to)}" if to not in ("", subject) else ""
    return f"{{{kind}: {{account: {account}, subject: {_quoted(subject)}}}{named}}}"


def _account_text(
    name: str, head: str, *, exports: Iterable[str] = (), imports: Iterable[str] = ()
) -> str:
    parts = [f"  {name} {{", head]
    for key, rows in (("exports", exports), ("imports", imports)):
        if listed := _listed(rows, 6):
            parts.append(f"    {key}: [\n{listed}\n    ]")
    return "\n".join((*parts, "  }"))


def _quoted(name: str) -> str:
    return msgspec.json.encode(name).decode()


def _listed(rows: Iterable[str], indent: int) -> str:
    return "\n".join(" " * indent + row for row in rows)


def main() -> None:
    """Write the shipped file again."""
    path = Path(__file__).resolve().parents[4] / "deploy" / "nats" / "authorization.conf"
    path.write_text(authorization_conf(), encoding="utf-8")
    sys.stdout.write(f"{path} written\n")


if __name__ == "__main__":
    main()
