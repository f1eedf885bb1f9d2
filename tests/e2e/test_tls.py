#!/usr/bin/env python3
"""`carat serve` by TLS: answers and streams, another certificate while it runs, files that are
wrong."""
import contextlib
import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import tempfile

import program
from program import Skip, carat, environment, expect, expect_error
from server import Server, need_server

CHAT = "/v1/chat/completions"


@contextlib.contextmanager
def certificates(*names):
    """A folder with NAME.crt and NAME.key for each; its files by name."""
    with tempfile.TemporaryDirectory() as folder:
        def path(name):
            return os.path.join(folder, name)

        for name in names:
            command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                       "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                       "-subj", f"/CN={name}.test", "-keyout", path(f"{name}.key"),
                       "-out", path(f"{name}.crt")]
            try:
                subprocess.run(command, check=True, capture_output=True)
            except FileNotFoundError:
                raise Skip("openssl makes the certificates, and it is not here") from None
        yield path


def need_tls():
    need_server()
    if "gnutls" not in program.libraries():
        raise Skip("built without GnuTLS")


class Secure(Server):
    """The server and connections to it by TLS."""

    def connect(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(self.host, self.port, timeout=program.LIMIT,
                                           context=context)

    def name(self):
        """Whose certificate a new connection gets."""
        connection = self.connect()
        connection.connect()
        with connection.sock as s:
            return re.search(rb"(\w+)\.test", s.getpeercert(True)).group(1).decode()


def test_answers_and_streams_are_encrypted():
    need_tls()
    with certificates("one") as path, \
            Secure("demo", "--tls-cert", path("one.crt"), "--tls-key", path("one.key")) as server:
        status, body = server.chat("Hi", max_tokens=8, temperature=0)
        expect(status == 200, body)
        request = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8,
                   "temperature": 0, "stream": True}
        events = list(server.stream(CHAT, request))
        expect(events[-1] == "[DONE]", events[-1])
        text = "".join(c["delta"].get("content") or "" for e in events[:-1] for c in e["choices"])
        expect(text == body["choices"][0]["message"]["content"], f"{text!r} {json.dumps(body)}")


def test_the_certificate_is_exchanged_while_it_runs():
    need_tls()
    with certificates("one", "two") as path:
        def place(name):
            for end in "crt", "key":
                with open(path(f"{name}.{end}"), "rb") as f, open(path(f"now.{end}"), "wb") as g:
                    g.write(f.read())

        place("one")
        with Secure("demo", "--tls-cert", path("now.crt"), "--tls-key", path("now.key")) as server:
            expect(server.name() == "one", "the first")
            place("two")
            server.process.send_signal(signal.SIGHUP)
            server.wait_until(lambda: server.name() == "two")
            with open(path("now.crt"), "wb") as f:
                f.write(b"nothing")
            server.process.send_signal(signal.SIGHUP)
            server.wait_for_line("now.crt")
            expect(server.name() == "two", "a mistake changes nothing")


def test_wrong_files_are_named_before_it_listens():
    need_tls()
    with certificates("one", "two") as path:
        for certificate, key, words in ("none.crt", "one.key", "none.crt"), \
                ("one.key", "one.key", "no certificate"), \
                ("one.crt", "one.crt", "no private key"), \
                ("one.crt", "two.key", "do not belong together"):
            done = carat("serve", "demo", "--port", "0", "--tls-cert", path(certificate),
                         "--tls-key", path(key), env=environment())
            expect_error(done, 2, words)


if __name__ == "__main__":
    program.main(globals())
