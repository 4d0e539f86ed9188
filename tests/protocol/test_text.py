"""Text from a peer."""

from odradek.protocol.text import printable


def test_nobody_elses_text_moves_the_cursor() -> None:
    assert printable("flüge-1") == "flüge-1"
    assert printable("a\x1b[2Jb\n") == r"a\x1b[2Jb\n"
