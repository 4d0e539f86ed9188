"""Lines of JAAS: users and passwords with any signs, and errors that have no part of a password."""

import pytest

from odradek.protocol.jaas import PLAIN_MODULE, JaasError, parse_jaas


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("M required;", {}),
        ("  M\n\trequired ; ", {}),
        ('M REQUIRED a="b";', {"a": "b"}),
        ("M optional a=b c = d;", {"a": "b", "c": "d"}),
        ('M sufficient a="";', {"a": ""}),
        ('M requisite user_a="x y" user_b="=,;\'";', {"user_a": "x y", "user_b": "=,;'"}),
        (r'M required user_a="with \" and \\";', {"user_a": 'with " and \\'}),
        ('M required "user_a b"="c";', {"user_a b": "c"}),
        ('M required user_ä="c";', None),
        ('M required "user_ä"="pässword";', {"user_ä": "pässword"}),
        ('M required a="b"\n  c="d"\n;', {"a": "b", "c": "d"}),
    ],
)
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
        'M required "user_\\a"="hush" user_a="hush";',
        'M required user_a="hush"; N required user_b="hush";',
        'M required user_a="hu"sh";',
    ],
)
def test_a_line_that_is_not_jaas_is_refused_without_a_part_of_a_password(text: str) -> None:
    with pytest.raises(JaasError) as error:
        parse_jaas(text)
    assert "hush" not in str(error.value)
