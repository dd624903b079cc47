"""Announces root spans to profbridge, so that a target with `profile_lifecycle: trace` is profiled while they are open.

    with Announcer() as spans:
        with spans.root_span(sampled=True) as header:   # sentry-trace, to be handed on to other services
            work()

Nothing here fails the program: without profbridge every call does nothing. Spans end with the connection, so keep one
Announcer for the whole program; a process that forks makes a new one behind the fork.
"""

import contextlib
import json
import os
import secrets
import socket
import threading


def default_path():
    folder = os.environ.get("XDG_RUNTIME_DIR", "")
    if not os.path.isabs(folder):
        folder = "/run"
    return os.path.join(folder, "profbridge", "control.sock")


class Announcer:
    def __init__(self, path=None, timeout=1.0):
        self._lock = threading.Lock()
        self._file = None
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout)
        try:
            connection.connect(path or default_path())
            self._file = connection.makefile("rwb")
        except OSError:
            pass
        finally:
            # The file keeps the connection where there is one.
            connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        with self._lock:
            self._close()

    def _close(self):
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def request(self, **request):
        """Asks, and returns the answer; None where there is no profbridge."""
        with self._lock:
            if self._file is None:
                return None
            try:
                self._file.write(json.dumps(request).encode() + b"\n")
                self._file.flush()
                return json.loads(self._file.readline())
            except (OSError, ValueError):
                self._close()
                return None

    def link(self, event, hint=None):
        """An event processor of Sentry's SDK: a transaction names the profiler and the thread whose samples belong to it.

            sentry_sdk.init(dsn=..., traces_sample_rate=1.0)
            sentry_sdk.get_global_scope().add_event_processor(announcer.link)
        """
        contexts = event.setdefault("contexts", {}) if event.get("type") == "transaction" else None
        # A transaction that has a profiler was profiled by the SDK itself.
        if contexts is not None and "profile" not in contexts:
            # The processor runs in the thread that ends the transaction.
            answer = self.request(command="profiler", thread=threading.get_native_id()) or {}
            if answer.get("profiler_id"):
                contexts["profile"] = {"profiler_id": answer["profiler_id"]}
            if answer.get("thread_id"):
                contexts.setdefault("trace", {}).setdefault("data", {})["thread.id"] = answer["thread_id"]
        return event

    @contextlib.contextmanager
    def root_span(self, sampled=True):
        """A root span with ids of its own. A program that uses Sentry's SDK hands over that of its transaction instead."""
        header = f"{secrets.token_hex(16)}-{secrets.token_hex(8)}-{int(sampled)}"
        with self.announced(header):
            yield header

    @contextlib.contextmanager
    def announced(self, sentry_trace):
        """Announces a span that somebody else made, by its sentry-trace."""
        self.request(command="span_start", **{"sentry-trace": sentry_trace})
        try:
            yield
        finally:
            self.request(command="span_end", **{"sentry-trace": sentry_trace})
