"""gevent and eventlet: what they patch, and the sentence that says which arguments help."""

import socket
import sys
import threading
from types import SimpleNamespace

import pytest

from odradek.client.blocking.loop import Loop
from odradek.client.errors import Refused
from odradek.client.green import EVENTLET, GEVENT, check_import, why_not


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the modules that a gevent, which is not there, has patched."""
    names: set[str] = set()
    fake = SimpleNamespace(is_module_patched=names.__contains__)
    monkeypatch.setitem(sys.modules, GEVENT, fake)
    return names


def test_under_gevent_a_sentence_says_which_arguments_help(patched: set[str]) -> None:
    patched |= {"socket", "ssl", "time"}  # these do no harm
    assert why_not() is None
    patched |= {"select", "threading", "queue"}
    sentence = r"^gevent has patched select, threading, queue: call .*patch_all\(select=False, th"
    with pytest.raises(Refused, match=sentence):
        Loop()
    with pytest.raises(ImportError, match=sentence):
        check_import()


def test_gevent_that_patches_sockets_under_the_client_is_noticed(
    patched: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    patched.add("socket")
    monkeypatch.setattr(socket, "socket", type("Patched", (socket.socket,), {}))
    with pytest.raises(Refused, match=r"patched socket, after odradek\.client was imported: call"):
        Loop()


def test_under_eventlet_a_sentence_says_when_to_import_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names: set[str] = set()
    fake = SimpleNamespace(is_monkey_patched=names.__contains__)
    monkeypatch.setitem(sys.modules, EVENTLET, fake)
    check_import()
    monkeypatch.setattr(threading, "RLock", threading._PyRLock)  # type: ignore[attr-defined]
    assert why_not() is None  # the client was imported first
    with pytest.raises(ImportError, match=r"patched the locks of threads: import odradek\.client"):
        check_import()
    names |= {"socket", "thread"}
    with pytest.raises(Refused, match=r"patched socket, thread: import .*monkey_patch\(socket="):
        Loop()
