"""What is an address of NATS, for services and for commands."""

import re

import pytest
from click.testing import CliRunner

from allotment.adapters.service.settings import NATS_URLS
from allotment_cli.main import main


@pytest.mark.parametrize(
    "text",
    ["nats://127.0.0.1:4222", "tls://nats-0:4222,tls://nats-1:4222", "tls://[::1]", "nats://u:p@h"],
)
def test_addresses_are_taken(text: str) -> None:
    assert re.match(NATS_URLS, text)


@pytest.mark.parametrize("text", ["tls://", "nats://a:4222,tls://", "nats://host:port", ":", "a"])
def test_a_command_says_what_is_no_address(text: str) -> None:
    """It ended in a traceback of the NATS client."""
    result = CliRunner().invoke(main, ["get", "pods", "--nats", text])
    assert result.exit_code == 2
    assert f"{text!r} is not the address of a server" in " ".join(result.stderr.split())
