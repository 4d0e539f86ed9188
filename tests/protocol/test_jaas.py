"""Lines of JAAS: users and passwords with any signs, and errors that have no part of a password."""

from typing import Final

import pytest

from odradek.protocol.jaas import PLAIN_MODULE, JaasError, parse_jaas

LINES: Final[list[tuple[str, dict[str, str] | None]]] = [
    ("M required;", {}),
    ("  M\n\trequired ; ", {}),
    ('M REQUIRED a="b";', {"a": "b"}),
    ("M optional a=b c = d;", {"a": "b", "c": "d"}),
    ('M sufficient a="";', {"a": ""}),
    ('M requisite user_a="x y" user_b="=,;\'";', {"user_a": "x y", "user_b": "=,;'"}),
    (r'M required user_a="with \" and \\";', {"user_a": 'with " and \\'}),
    ('M required "user_a b"="c";', {"user_a b": "c"}),
    ('M required user_ä="c";', {"user_ä": "c"}),
    ('M required "user_ä"="pässword 🔑";', {"user_ä": "pässword 🔑"}),
    ('M required a="b"\n  c="d"\n;', {"a": "b", "c": "d"}),
    # quotes, and what a backslash makes of the next sign
    ("M required a='b \"c\"' d=\"e 'f'\";", {"a": 'b "c"', "d": "e 'f'"}),
    (r'M required a="\a\b\f\n\r\t\v\x\;\=";', {"a": "\a\b\f\n\r\t\vx;="}),
    (r'M required a="\0\12\101\1017\400\8\777";', {"a": "\0\nAA7\x20\x308\x3f7"}),
    (r'M required a="C:\temp\new";', {"a": "C:\temp\new"}),
    ('M required a="one \\\ntwo";', {"a": "one \ntwo"}),
    ('M required a="one\ntwo";', None),
    ('M required a="\t";', {"a": "\t"}),
    # bare values: letters, digits behind them, and few signs; a number has no text
    ("M required a=b-c_d$e.f1;", {"a": "b-c_d$e.f1"}),
    ("M required a=äöü;", {"a": "äöü"}),
    ("M required a=-b;", None),
    ("M required a=1234;", None),
    ("M required a=12ab;", None),
    ("M required a=.5;", None),
    ("M required a=b@c;", None),
    ("M required a=b%c;", None),
    ("M required 1=b;", None),
    # comments
    (
        'M required // all users\n a="b" /* and\nmore */ c="d//e/*f*/";',
        {"a": "b", "c": "d//e/*f*/"},
    ),
    ("M required a=b//c;\n;", {"a": "b"}),
    ("M required a=b/c;", None),
    ("M required a=b/c\n;", {"a": "b"}),
    ('M required a="b"; // the end', {"a": "b"}),
    ('M required a="b" /* ;', None),
]
"""Lines, and their options; None for one that is refused. Kafka reads them so, too (`peers`)."""


@pytest.mark.parametrize(("text", "options"), LINES)
def test_options_are_read_with_all_their_signs(text: str, options: dict[str, str] | None) -> None:
    if options is None:
        with pytest.raises(JaasError):
            parse_jaas(text)
    else:
        assert parse_jaas(text).options == options


def test_the_module_is_only_named() -> None:
    assert parse_jaas(f"{PLAIN_MODULE} required;").module == PLAIN_MODULE
    assert parse_jaas("com.sun.jndi.ldap.LdapCtx required;").module == "com.sun.jndi.ldap.LdapCtx"


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "M;",
        'M user_a="hush";',
        'M perhaps user_a="hush";',
        'M required user_a="hush"',
        'M required user_a="hush;',
        'M required user_a"hush";',
        "M required user_a= ;",
        'M required user_a="hush" hush;',
        'M required user_a="hush" =hush;',
        'M required user_a="hush" user_a="hush";',
        'M required "user\\_a"="hush" user_a="hush";',
        'M required user_a="hush"; N required user_b="hush";',
        'M required user_a="hu"sh";',
    ],
)
def test_a_line_that_is_not_jaas_is_refused_without_a_part_of_a_password(text: str) -> None:
    with pytest.raises(JaasError) as error:
        parse_jaas(text)
    assert "hush" not in str(error.value)
