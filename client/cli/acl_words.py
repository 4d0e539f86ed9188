"""The words for entries of access control, and for what they decide. Pure."""

from ipaddress import ip_address

from odradek.client.administration.acls import Acl


def because(reason: str, entry: Acl | None, is_allowed: bool) -> str:
    if entry is not None:
        return f"the entry {entry_sentence(entry)} decides"
    if reason == "super.users":
        return "it is one of super.users"
    if reason == "no entry for it":
        return "there are entries about the resource, and none of them allows it"
    if is_allowed:
        return "no entry is about the resource, and allow.everyone.if.no.acl.found is true"
    return "no entry is about the resource"


def entry_sentence(entry: Acl) -> str:
    kind = entry.resource.replace("_", " ")
    which = f"{kind}s beginning with" if entry.pattern == "prefixed" else kind
    return (
        f"{entry.permission} {entry.principal} at {entry.host} {entry.operation} "
        f"on {which} {entry.name}"
    )


def never_counts(entry: Acl) -> str | None:
    """Return the reason why an entry decides nothing, if it never can."""
    if not entry.principal.startswith("User:"):
        return "principals are User:NAME"
    if entry.host != "*":
        try:
            ip_address(entry.host)
        except ValueError:
            return "the host is no address"
    return None
