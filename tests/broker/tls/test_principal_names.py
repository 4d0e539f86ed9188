"""Principals from certificates: the names are Java's, and the rules those of Kafka."""

import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from odradek.broker.config.settings import ConfigError
from odradek.broker.environment.env import HandshakeFailed
from odradek.broker.security.principal import ANONYMOUS, Principal
from odradek.broker.tls.principal_names import NoRule, PrincipalRules, distinguished_name
from tests.certificates import Authority, in_latin_1

Part = tuple[x509.ObjectIdentifier, str]
NAME = """
import java.io.*;
import java.security.cert.*;

public class Name {
    public static void main(String[] files) throws Exception {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        for (String file : files) {
            X509Certificate it =
                (X509Certificate) factory.generateCertificate(new FileInputStream(file));
            out.println(it.getSubjectX500Principal().getName());
        }
    }
}
"""


def subject(*parts: tuple[Part, ...]) -> x509.Name:
    return x509.Name(
        [
            x509.RelativeDistinguishedName([x509.NameAttribute(oid, text) for oid, text in part])
            for part in parts
        ]
    )


ALL = subject(
    ((NameOID.COUNTRY_NAME, "DE"),),
    ((NameOID.STATE_OR_PROVINCE_NAME, "a state"),),
    ((NameOID.LOCALITY_NAME, "L\ta*b@_é\0z"),),
    ((NameOID.STREET_ADDRESS, "street, 1"),),
    ((NameOID.DOMAIN_COMPONENT, "com"),),
    ((NameOID.USER_ID, "u1"),),
    ((NameOID.ORGANIZATION_NAME, 'a,b+c"d\\e<f>g;h=i#j'), (NameOID.ORGANIZATIONAL_UNIT_NAME, "#1")),
    ((NameOID.COMMON_NAME, " é within  it "),),
)
OTHERS = subject(
    ((NameOID.COMMON_NAME, "alice"),),
    ((NameOID.EMAIL_ADDRESS, "a@example.com"),),
    ((NameOID.SERIAL_NUMBER, "12"),),
    ((NameOID.TITLE, "T" * 60),),
)
NAMES = {
    ALL: r"CN=\ é within  it\ ,OU=\#1+O=a\,b\+c\"d\\e\<f\>g\;h\=i\#j,UID=u1,DC=com,"
    "STREET=street\\, 1,L=L\ta*b@_é\\00z,ST=a state,C=DE",
    OTHERS: f"2.5.4.12=#0c3c{'54' * 60},2.5.4.5=#13023132,"
    "1.2.840.113549.1.9.1=#160d61406578616d706c652e636f6d,CN=alice",
}


@pytest.mark.parametrize("name", NAMES, ids=["words", "numbers"])
def test_a_name_is_written_as_java_writes_it(name: x509.Name, tmp_path: Path) -> None:
    certificate = Authority(tmp_path).signed("x", subject=name)
    assert distinguished_name(certificate.der).split(",") == NAMES[name].split(",")


@pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java to compare with")
@pytest.mark.slow
def test_the_names_here_are_what_java_itself_writes(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = [
        authority.signed(str(number), subject=name).certificate_file
        for number, name in enumerate(NAMES)
    ]
    source = tmp_path / "Name.java"
    source.write_text(NAME)
    command = ["java", str(source), *files]
    said = subprocess.run(command, check=True, capture_output=True, timeout=120).stdout.decode()
    assert said.splitlines() == list(NAMES.values())


@pytest.mark.parametrize(
    ("rules", "made"),
    [
        ("DEFAULT", "CN=Alice,OU=Team,O=Firm"),
        ("RULE:^CN=(.*?),OU=Team.*$/$1/", "Alice"),
        ("RULE:^CN=(.*?),OU=Team.*$/$1/L", "alice"),
        ("RULE:^CN=(.*?),OU=(.*?),O=.*$/$2-$1/U", "TEAM-ALICE"),
        ("RULE:^OU=(.*)$/$1/, RULE:^CN=(.*?),.*$/$1@x/ , DEFAULT", "Alice@x"),
        ("RULE:^CN=Bob$/bob/,DEFAULT", "CN=Alice,OU=Team,O=Firm"),
        (r"RULE:^CN=(.*?),.*$/a\/\$$1/", "a/$Alice"),
        ("RULE:Alice/it matches a part only/,DEFAULT", "CN=Alice,OU=Team,O=Firm"),
        ("RULE:(.*)/$1x/", "CN=Alice,OU=Team,O=Firmxx"),  # Java replaces the empty rest, too
    ],
)
def test_the_first_rule_that_matches_the_whole_name_counts(rules: str, made: str) -> None:
    assert PrincipalRules(rules).name_of("CN=Alice,OU=Team,O=Firm") == made


def test_a_name_that_no_rule_matches_is_nobody() -> None:
    with pytest.raises(NoRule, match=r"no rule of ssl\.principal\.mapping\.rules matches 'O=x'"):
        PrincipalRules("RULE:^CN=(.*)$/$1/").name_of("O=x")


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ("RULE:a/b", "is DEFAULT, or RULE:pattern/replacement/ with L or U behind it"),
        ("RULE:a/b/X", "not 'RULE:a/b/X'"),
        ("default", "not 'default'"),
        ("RULE:(?=a)/b/", "has the pattern '(?=a)', which RE2 does not take"),
        ("RULE:(a/b/", "has the pattern '(a', which RE2 does not take"),
        ("RULE:a/$1/", "'$1' names a group that the pattern 'a' does not have"),
    ],
)
def test_a_wrong_rule_is_one_sentence(rules: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        PrincipalRules(rules)
    assert sentence in str(refused.value)


def test_a_client_without_a_certificate_is_anonymous(tmp_path: Path) -> None:
    rules = PrincipalRules("DEFAULT")
    assert rules.principal_of(None) == ANONYMOUS
    alice = Authority(tmp_path).signed("alice")
    assert rules.principal_of(alice.der) == Principal("User", "CN=alice,O=Test")


def test_a_name_that_cannot_be_read_is_refused_in_a_sentence(tmp_path: Path) -> None:
    """OpenSSL takes a name in Latin-1 as TeletexString, and the library of the names does not."""
    certificate = Authority(tmp_path).signed("Mxller").der
    odd = in_latin_1(certificate, b"Mxller", b"M\xfcller")
    with pytest.raises(HandshakeFailed, match="its certificate has a name that cannot be read"):
        distinguished_name(odd)
