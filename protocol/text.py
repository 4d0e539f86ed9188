"""Safe output of text from a peer, in a terminal or a log."""


def printable(text: str) -> str:
    """Return `text` with control characters and line breaks escaped."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


TEXT_MAX = 400
"""The most characters of a peer's text that a message quotes."""


def shortened(text: str) -> str:
    """Return `text`, cut to `TEXT_MAX` characters."""
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}..."
