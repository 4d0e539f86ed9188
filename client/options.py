"""The kinds of values that options take, and the names that users of other clients give them.

The annotations of a configuration's fields say what each option is. `check_kinds` reads them, so
that no option is without a check, and a wrong value is named together with its option.
"""

import difflib
import types
import typing
from collections.abc import Sequence
from dataclasses import fields
from numbers import Integral, Real
from typing import Any, Final

ELSEWHERE: Final = {
    "batch_size": "batch_bytes",
    "max_batch_size": "batch_bytes",
    "buffer_memory": "buffer_bytes",
    "compression_type": "compression",
    "enable_idempotence": "idempotent",
    "max_request_size": "request_bytes",
    "message_timeout_ms": "delivery_timeout_ms",
    "max_partition_fetch_bytes": "partition_fetch_bytes",
    "partition_assignment_strategy": "partition_assignors",
    "enable_auto_offset_store": "enable_auto_commit",
    "socket_timeout_ms": "request_timeout_ms",
    "default_api_timeout_ms": "max_block_ms",
    "group_remote_assignor_name": "group_remote_assignor",
    "ssl_cafile": "ssl_ca_location",
    "ssl_truststore_location": "ssl_ca_location",
    "ssl_truststore_password": "ssl_ca_password",
    "ssl_certfile": "ssl_certificate_location",
    "ssl_keystore_location": "ssl_certificate_location",
    "ssl_keyfile": "ssl_key_location",
    "ssl_keystore_password": "ssl_key_password",
    "ssl_password": "ssl_key_password",
    "ssl_endpoint_identification_algorithm": "ssl_check_hostname",
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
    "sasl_oauth_token_provider": "sasl_token",
    "oauth_cb": "sasl_token",
}
"""Names that other clients of Kafka have for the same."""
ADDRESS: Final = frozenset({"bootstrap_servers", "bootstrap", "servers", "brokers", "hosts"})
UNITS: Final = {"_ms": " of milliseconds", "_bytes": " of bytes"}
ALIKE: Final = 0.6
"""The least likeness of two names, between 0 and 1, of which one may be meant by the other."""


def known_as(name: str, names: Sequence[str]) -> str:
    """Return the end of a sentence about an option that a class does not have."""
    text = f"has no option {name!r}"
    plain = name.replace(".", "_").lower()
    if plain in ADDRESS:
        return f"{text}: the address of the brokers is the first argument"
    found = ELSEWHERE.get(plain)
    if found not in names:
        found = next(iter(difflib.get_close_matches(plain, names, 1, ALIKE)), None)
    return text if found is None else f"{text}: did you mean {found!r}?"


def check_kinds(config: Any) -> None:
    """Raise ValueError for the first field of a configuration whose value is of another kind.

    The message does not show the value of a field that `repr` hides, such as a password.
    """
    hidden = {field.name for field in fields(config) if not field.repr}
    for name, hint in _hints(type(config)).items():
        value = getattr(config, name)
        what = _what(hint, name)
        if what is not None and not _is_of(value, hint):
            given = f"a value of the type {type(value).__name__}" if name in hidden else repr(value)
            raise ValueError(f"{name} is {what}, and {given} was given")


def check_one_of(allowed: Sequence[object], **values: object) -> None:
    """Raise ValueError for the first value that is not among the allowed ones."""
    for name, value in values.items():
        if value not in allowed:
            known = ", ".join(map(repr, allowed))
            raise ValueError(f"{name} is one of {known}, and {value!r} was given")


def _hints(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _parts(hint: Any) -> tuple[Any, ...]:
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if is_union else (hint,)


def _what(hint: Any, name: str) -> str | None:
    """Return what the value of an option is, in words. None for one that has a check of its own."""
    unit = next((unit for end, unit in UNITS.items() if name.endswith(end)), "")
    words = {int: f"a whole number{unit}", float: f"a number{unit}", str: "a str"}
    words |= {bool: "True or False", type(None): "None"}
    words |= {part: "a path" for part in _parts(hint) if _is_path(part)}
    found = [words.get(part, "a function" if _is_function(part) else "") for part in _parts(hint)]
    return " or ".join(found) if all(found) else None


def _is_function(part: Any) -> bool:
    return callable(part) and (
        (getattr(part, "_is_protocol", False) and "__call__" in vars(part))
        or "Callable" in str(typing.get_origin(part))
    )


def _is_path(part: Any) -> bool:
    return hasattr(typing.get_origin(part), "__fspath__")  # os.PathLike


def _is_of(value: object, hint: Any) -> bool:
    for part in _parts(hint):
        if part is bool or part is type(None) or part is str:
            is_of = isinstance(value, part)
        elif part is int or part is float:
            number = Integral if part is int else Real
            is_of = isinstance(value, number) and not isinstance(value, bool)
        elif _is_path(part):
            is_of = hasattr(value, "__fspath__")
        else:
            is_of = callable(value)
        if is_of:
            return True
    return False
