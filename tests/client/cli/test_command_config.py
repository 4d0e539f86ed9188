"""--command-config: a file of Kafka's client settings for each command."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from odradek.client.cli.client_properties import (
    client_properties,
    read_client_properties,
    warnings_of,
)
from odradek.client.errors import AuthenticationFailed
from tests.secured import Secured, run_secured

PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SECRET: Final = 'password="secret word"'


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with run_secured(tmp_path_factory.mktemp("certificates")) as found:
        yield found


def odradek(*words: str, given: str | None = None) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "odradek.broker", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, input=given)


def test_the_settings_of_a_file_are_options() -> None:
    text = """
        bootstrap.servers=b1:9093
        security.protocol=ssl
        ssl.truststore.type=PEM
        ssl.truststore.location=ca.crt
        ssl.keystore.location=/etc/alice.p12
        ssl.keystore.password=secret
        ssl.endpoint.identification.algorithm=
        acks=all
        """
    found = client_properties(text, "f")
    assert found.bootstrap == "b1:9093"
    assert found.options == {
        "security_protocol": "SSL",
        "ssl_ca_location": "ca.crt",
        "ssl_certificate_location": "/etc/alice.p12",
        "ssl_key_password": "secret",
        "ssl_check_hostname": False,
    }


def test_without_a_protocol_a_client_is_plain_as_in_java() -> None:
    found = client_properties("ssl.truststore.location=ca.crt\nclient.id=x", "f")
    assert found.options == {"client_id": "x", "security_protocol": "PLAINTEXT"}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "security.protocol=TLS",
            "security.protocol is one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, and 'TLS' was",
        ),
        ("sasl.mechanism=GSSAPI", "sasl.mechanism is one of PLAIN, SCRAM-SHA-256,"),
        ("sasl.login.class=x.Login", "sasl.login.class is not known here"),
        (
            "sasl.client.callback.handler.class=x.Handler",
            "sasl.client.callback.handler.class names a class, and none is loaded here",
        ),
        (f"sasl.jaas.config=x.Module required {SECRET};", "names another class than PlainLoginMod"),
        (f"sasl.jaas.config={PLAIN} required {SECRET}", "sasl.jaas.config cannot be read: "),
        (
            f"sasl.jaas.config={PLAIN} required {SECRET} x=y;",
            "has the option x, which is not",
        ),
        ("sasl.oauthbearer.extensions=a", "is NAME=VALUE, several separated by commas"),
        ("sasl.password=${env:ODRADEK_NOT_SET}", "${env:ODRADEK_NOT_SET} names no environment"),
        (
            "sasl.password=${vault:secret/data/kafka:password}",
            "sasl.password ${vault:...} is not known here: a value may stand elsewhere as",
        ),
        (
            f'sasl.jaas.config={PLAIN} required username="a" password="${{vault:kafka}}";',
            "${vault:...} is not known here: a value may stand elsewhere as ${env:NAME}, ",
        ),
        ("sasl.password=${file:/no/such:x}", "/no/such cannot be read: No such file"),
        (
            "ssl.truststore.locations=x",
            "ssl.truststore.locations is not known here (did you mean ssl.truststore.location?)",
        ),
        ("ssl.endpoint.identification.algorithm=x", "is https or empty, and 'x' was given"),
    ],
)
def test_a_mistake_about_security_is_one_sentence_with_the_line(line: str, sentence: str) -> None:
    with pytest.raises(ValueError, match="f, line 2: ") as refused:
        client_properties(f"# a comment\n{line}\n", "f")
    assert sentence in str(refused.value)
    assert "secret word" not in str(refused.value)


@pytest.mark.parametrize("prefix", ["", "kafkashaded."])
@pytest.mark.parametrize("module", [PLAIN, SCRAM])
def test_a_line_of_jaas_has_name_and_password(module: str, prefix: str) -> None:
    found = client_properties(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=scram-sha-256\n"
        f'sasl.jaas.config={prefix}{module} required \\\n username="a;l" password="se\\\\"c";\n',
        "f",
    )
    assert found.options == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_username": "a;l",
        "sasl_password": 'se"c',
    }


def test_a_line_of_jaas_has_the_client_of_a_token_server() -> None:
    found = client_properties(
        "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer."
        "OAuthBearerLoginCallbackHandler\n"
        "sasl.oauthbearer.token.endpoint.url=https://tokens/\n"
        f'sasl.jaas.config={OAUTH} required clientId="a" clientSecret="b" scope="c" '
        'extension_pool="p";',
        "f",
    )
    assert found.options == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": "https://tokens/",
        "sasl_oauthbearer_client_id": "a",
        "sasl_oauthbearer_client_secret": "b",
        "sasl_oauthbearer_scope": "c",
        "sasl_oauthbearer_extensions": {"pool": "p"},
    }


def test_the_names_of_librdkafka_are_known_too() -> None:
    found = client_properties(
        "security.protocol=sasl_ssl\nsasl.mechanisms=PLAIN\nsasl.username=a\nsasl.password=b\n",
        "f",
    )
    assert found.options == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "a",
        "sasl_password": "b",
    }


def test_secrets_may_stand_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODRADEK_TEST_USER", "ali\\ce")
    tmp_path.joinpath("secrets.properties").write_text('of.alice=se"c;ret\n')
    tmp_path.joinpath("ca").write_text("ca.crt\n")
    found = client_properties(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN} required username="${{env:ODRADEK_TEST_USER}}" '
        f'password="${{file:{tmp_path}/secrets.properties:of.alice}}";\n'
        f"ssl.truststore.location=/etc/${{directory:{tmp_path}:ca}}\n",
        "f",
    )
    assert found.options["sasl_username"] == "ali\\ce"
    assert found.options["sasl_password"] == 'se"c;ret'
    assert found.options["ssl_ca_location"] == "/etc/ca.crt"


def test_a_token_may_stand_in_a_file_that_another_program_renews(tmp_path: Path) -> None:
    file = tmp_path / "token"
    found = client_properties(
        "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url=file://{file}\n",
        "f",
    )
    fetch = found.options["sasl_token"]
    assert callable(fetch)
    for token in ("one", "two"):
        file.write_text(f"{token}\n")
        assert fetch() == token
    file.write_bytes(b"\xff")
    for why in ("it is not UTF-8", "No such file or directory"):
        with pytest.raises(AuthenticationFailed) as refused:
            fetch()
        assert str(refused.value) == f"no token for OAUTHBEARER: {file} cannot be read: {why}"
        file.unlink(missing_ok=True)


def test_what_does_not_count_with_a_protocol_is_left_out_as_in_java() -> None:
    both = f"ssl.truststore.location=x\nsasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN} required;\n"
    for protocol in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT"):
        found = client_properties(f"security.protocol={protocol}\n{both}", "f").options
        kept = {name.partition("_")[0] for name in found} - {"security"}
        assert kept == {"PLAINTEXT": set(), "SSL": {"ssl"}, "SASL_PLAINTEXT": {"sasl"}}[protocol]


def test_a_profile_is_a_file_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    said = odradek("topic", "list", "--profile", "test")
    file = tmp_path / "odradek" / "test.properties"
    assert said.stderr == f"Error: There is no profile 'test': make the file {file}.\n"
    assert odradek("ping", "--profile", "test").stderr == said.stderr
    file.parent.mkdir()
    file.write_text("bootstrap.servers=127.0.0.1:1\n")
    said = odradek("topic", "list", "--profile", "test")
    assert "127.0.0.1:1" in said.stderr
    assert "127.0.0.1:1" in odradek("ping", "-b", "127.0.0.1:1", "--profile", "test").stderr
    both = odradek("topic", "list", "--profile", "test", "--command-config", str(file))
    assert "both name a file of settings: give one" in both.stderr


@pytest.mark.parametrize("command", [("topic", "list"), ("ping",)])
def test_a_file_on_the_command_line_counts_before_one_of_the_environment(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One option was given, and the error said that two were."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file, profile = tmp_path / "f.properties", tmp_path / "odradek" / "p.properties"
    file.write_text("bootstrap.servers=127.0.0.1:1\n")
    profile.parent.mkdir()
    profile.write_text("bootstrap.servers=127.0.0.1:2\n")
    monkeypatch.setenv("ODRADEK_COMMAND_CONFIG", str(file))
    assert "127.0.0.1:2" in odradek(*command, "--profile", "p").stderr
    monkeypatch.setenv("ODRADEK_PROFILE", "p")
    assert "both name a file of settings: give one." in odradek(*command).stderr
    monkeypatch.delenv("ODRADEK_COMMAND_CONFIG")
    assert "127.0.0.1:1" in odradek(*command, "--command-config", str(file)).stderr
    monkeypatch.setenv("ODRADEK_PROFILE", "of nobody")
    assert "127.0.0.1:1" in odradek(*command, "--command-config", str(file)).stderr


KEY: Final = "-----BEGIN PRIVATE KEY-----\\nabc\\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("line", "has_secret"),
    [
        ("sasl.password=secret word", True),
        ("sasl.password=before ${env:ODRADEK_TEST_WORD}", False),
        ("sasl.username=alice", False),
        (f'sasl.jaas.config={SCRAM} required username="alice" {SECRET};', True),
        (
            f'sasl.jaas.config={SCRAM} required password="${{env:ODRADEK_TEST_WORD}}";',
            False,
        ),
        (f'sasl.jaas.config={OAUTH} required clientId="a" clientSecret="b";', True),
        ("sasl.oauthbearer.client.secret=b", True),
        ("ssl.key.password=x", True),
        (f"ssl.keystore.key={KEY}", True),
        ("ssl.keystore.location=/etc/alice.p12", False),
        ("ssl.truststore.password=changeit", False),
    ],
)
def test_a_file_has_a_secret_if_it_does_not_stand_elsewhere(
    line: str, has_secret: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODRADEK_TEST_WORD", "word")
    assert client_properties(f"security.protocol=SASL_SSL\n{line}\n", "f").has_secret is has_secret


@pytest.mark.parametrize("command", [("topic", "list"), ("ping",)], ids=" ".join)
def test_a_secret_that_every_user_can_read_is_one_line_of_warning(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers=127.0.0.1:1\nsasl.password={SECRET}\n")
    given = (*command, "--bootstrap", "127.0.0.1:1", "--command-config", str(file))
    said = {}
    for mode in (0o644, 0o640, 0o600):
        file.chmod(mode)
        ran = odradek(*given)
        assert ran.returncode == 1
        assert ran.stdout == ""
        said[mode] = [line for line in ran.stderr.splitlines() if not line.startswith("Error: ")]
    assert said == {
        0o644: [
            f"Warning: {file} has a secret, and its mode lets every user of this machine read it: "
            f"chmod 600 {file}"
        ],
        0o640: [],
        0o600: [],
    }


def test_the_files_that_a_secret_is_taken_from_have_warnings_too(tmp_path: Path) -> None:
    password, other, key, locked = (tmp_path / name for name in ("pw", "other", "key", "locked"))
    password.write_text(SECRET)
    other.write_text("no secret")
    key.write_text(KEY)
    locked.write_text(KEY.replace("PRIVATE", "ENCRYPTED PRIVATE"))
    for each in (password, other, key, locked):
        each.chmod(0o644)
    file = tmp_path / "client.properties"
    text = (
        "security.protocol=SASL_SSL\nsasl.password=${{directory:{0}:pw}}\n"
        "sasl.username=${{directory:{0}:other}}\nssl.key.location={0}/{1}\n"
    )
    for name, warned in (("key", [password, key]), ("locked", [password])):
        file.write_text(text.format(tmp_path, name))
        found = warnings_of(file, read_client_properties(file))
        assert [each.split()[1] for each in found] == list(map(str, warned))
    password.chmod(0o600)
    assert warnings_of(file, read_client_properties(file)) == []


@pytest.mark.slow
def test_commands_reach_a_broker_with_tls(secured: Secured, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"bootstrap.servers={secured.address}\nsecurity.protocol=SSL\n"
        f"ssl.truststore.location={secured.authority.file}\n"
        f"ssl.keystore.location={secured.alice.both_file}\n"
    )
    given = ("--command-config", str(file))
    made = odradek("topic", "create", "flights", *given)
    assert made.returncode == 0, made.stderr
    sent = odradek("produce", "flights", *given, given="LH 400\n")
    assert sent.returncode == 0, sent.stderr
    read = odradek("consume", "flights", "-n", "1", *given)
    assert "LH 400" in read.stdout, read.stderr
    well = odradek("ping", "--bootstrap", secured.address, *given)
    assert "answers, in" in well.stdout, well.stderr


@pytest.mark.slow
def test_commands_say_in_a_sentence_why_they_cannot_connect(
    secured: Secured, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\n")
    given = ("--bootstrap", secured.address, "--command-config", str(file))
    for command in (("topic", "list"), ("ping",)):
        said = odradek(*command, *given)
        assert said.returncode == 1
        assert f"certificate of {secured.address} is not trusted (" in said.stderr
        assert len(said.stderr.splitlines()) == 1
    file.write_text("security.protocol=SSL\nssl.truststore.location=/no/such\n")
    for command in (("topic", "list"), ("ping",)):
        said = odradek(*command, *given)
        assert said.returncode == 1
        assert said.stderr == "Error: /no/such cannot be read: No such file or directory.\n"
