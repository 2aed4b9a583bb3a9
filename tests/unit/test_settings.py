"""Settings: every source, their order, and messages a stranger can act on."""

from pathlib import Path
from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from allotment.adapters.service.settings import (
    CommonSettings,
    KubeSettings,
    SettingsError,
    as_fields,
    load,
)


class Example(CommonSettings, frozen=True, kw_only=True):
    scheduler_names: Annotated[
        tuple[str, ...], Meta(description="schedulerName values we answer to")
    ] = ("allotment", "volcano")
    batch: Annotated[int, Meta(description="pods in a batch, 100 % of them", ge=1, le=256)] = 64
    ratio: Annotated[float, Meta(description="a share", gt=0, lt=1)] = 0.5
    dry_run: Annotated[bool, Meta(description="decide, bind nothing")] = False
    token: Annotated[str | None, Meta(description="a secret", extra={"secret": True})] = None

    def __post_init__(self) -> None:
        if self.dry_run and self.batch == 1:
            raise ValueError("--dry-run with --batch 1 does nothing: give one of them")


class Needy(msgspec.Struct, frozen=True, kw_only=True):
    shard: Annotated[str, Meta(description="which shard")]


def of(*argv: str, **environ: str) -> Example:
    return load(Example, argv, environ, "example", "An example.")


def problems_of(*argv: str, **environ: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        of(*argv, **environ)
    return caught.value.problems


def test_defaults_then_environment_then_flags() -> None:
    assert of().nats_url == "nats://127.0.0.1:4222"
    environ = {"ALLOT_NATS_URL": "nats://env:4222", "ALLOT_BATCH": "7"}
    settings = of("--nats-url", "nats://flag:4222", **environ)
    assert settings.nats_url == "nats://flag:4222"
    assert settings.batch == 7
    assert of(ALLOT_BATCH="").batch == 64


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        (["--http-port=8080"], "http_port", 8080),
        (["--ratio", "0.25"], "ratio", 0.25),
        (["--dry-run"], "dry_run", True),
        (["--dry-run", "--no-dry-run"], "dry_run", False),
        (["--dry-run=off"], "dry_run", False),
        (["--scheduler-names", "a, b"], "scheduler_names", ("a", "b")),
        (["--snapshot-dir", "/tmp/x"], "snapshot_dir", Path("/tmp/x")),
        (["--log-format", "text"], "log_format", "text"),
        (["--batch", "1", "--batch", "2"], "batch", 2),
    ],
)
def test_each_kind_of_field(argv: list[str], field: str, value: object) -> None:
    assert getattr(of(*argv), field) == value


def test_all_problems_are_reported_together_each_with_source_value_and_cure() -> None:
    problems = problems_of(
        *["--http-port", "-5", "--ratio=2", "--nats-ulr", "x", "--log-level"],
        ALLOT_BATCH="many",
        ALLOT_NATS_URL="http://nats",
        ALLOT_LOG_FORMAT="xml",
        ALLOT_NATS_CREDS="/no/such.creds",
        ALLOT_DRY_RUN="perhaps",
    )
    text = "\n".join(problems)
    for words in (
        "--http-port='-5': expected a whole number from 0 to 65535",
        "--ratio='2': expected a number above 0 below 1",
        "--nats-ulr: there is no such flag; did you mean --nats-url?",
        "--log-level needs a value: one of debug, info, warning, error",
        "ALLOT_BATCH='many': expected a whole number from 1 to 256 (pods in a batch",
        "ALLOT_NATS_URL='http://nats': expected a text, for example nats://127.0.0.1:4222",
        "ALLOT_LOG_FORMAT='xml': expected one of json, text",
        "ALLOT_NATS_CREDS='/no/such.creds': expected a file that exists and can be read",
        "ALLOT_DRY_RUN='perhaps': expected true or false",
    ):
        assert words in text
    assert len(problems) == 10  # and the stray argument "x"


def test_fields_that_do_not_go_together() -> None:
    assert "give one of them" in problems_of("--dry-run", "--batch", "1")[0]


def test_a_required_field_names_both_ways_to_give_it() -> None:
    with pytest.raises(SettingsError, match="--shard is missing: give --shard or set ALLOT_SHARD"):
        load(Needy, [], {}, "needy", "")


def test_help_shows_every_field_with_variable_and_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        of("--help")
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for field in msgspec.structs.fields(Example):
        assert f"--{field.name.replace('_', '-')}" in text
        assert f"[ALLOT_{field.name.upper()};" in text
    assert "100 % of them [ALLOT_BATCH; default: 64]" in text
    assert "default: allotment,volcano" in text


def test_secrets_and_passwords_are_not_shown() -> None:
    settings = of("--nats-url", "nats://user:hunter2@nats:4222", ALLOT_TOKEN="hunter3")
    assert settings.token == "hunter3"
    assert "hunter" not in repr(settings)
    assert "hunter" not in str(as_fields(settings))
    assert as_fields(settings)["nats_url"] == "nats://********@nats:4222"
    assert "hunter" not in "".join(problems_of("--nats-url", "http://user:hunter2@nats"))


def test_settings_are_frozen_and_kube_settings_add_theirs(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("{}")
    settings = load(KubeSettings, ["--kubeconfig", str(file)], {}, "x", "")
    assert settings.kubeconfig == file
    assert settings.kube_concurrency == 32
    with pytest.raises(AttributeError):
        settings.kube_concurrency = 1  # type: ignore[misc]
