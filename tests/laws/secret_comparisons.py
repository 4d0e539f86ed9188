"""The law that secrets are compared in a time that does not show where they differ.

`==` ends at the first byte that differs, and who measures that learns a secret byte by byte: of
Kafka, CVE-2021-38153.
"""

import ast
from collections.abc import Iterator
from typing import Final

SECRETS: Final = frozenset(
    {
        *("password", "passphrase", "proof", "signature", "salted", "secret", "hash", "hmac"),
        *("client_key", "server_key", "stored_key", "salted_password", "digest"),
    }
)
"""Names of secrets, or the last part of them."""
PUBLIC: Final = frozenset({"metadata_hash"})
COMPARING: Final = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)
ASKING: Final = frozenset({"startswith", "endswith"})


def insecure_comparisons(tree: ast.Module) -> Iterator[str]:
    """Yield the comparisons of secrets in which the time tells where they differ."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            first, *others = node.left, *node.comparators
            for operator, other in zip(node.ops, others, strict=True):
                is_equality = isinstance(operator, (ast.Eq, ast.NotEq))
                compared = (first, other) if is_equality else (first,)
                if isinstance(operator, COMPARING) and any(map(is_secret, compared)):
                    yield ast.unparse(node)
                first = other
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ASKING
            and any(map(is_secret, (node.func.value, *node.args)))
        ):
            yield ast.unparse(node)


def is_secret(node: ast.expr) -> bool:
    """Return True for what has the name of a secret. A constant in capitals has none."""
    if isinstance(node, ast.Attribute):
        name = node.attr
    elif isinstance(node, ast.Name):
        name = node.id
    elif isinstance(node, ast.Call):
        return ast.unparse(node.func).rpartition(".")[2].strip("_") in SECRETS
    else:
        return False
    if name in PUBLIC:
        return False
    return any(name == each or name.endswith(f"_{each}") for each in SECRETS)
