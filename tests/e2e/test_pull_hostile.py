#!/usr/bin/env python3
"""pull against registries that lie, refuse, answer oddly or say nothing.

usage: tests/e2e/test_pull_hostile.py PROGRAM [NAME...]     (only tests whose name contains a NAME)
"""
import gzip
import hashlib
import json
import pathlib
import signal
import ssl
import subprocess
import tempfile
import time

import hub
import program
from hub_place import NAME, SECRET, Place
from program import Skip, expect, expect_error, expect_status, main

# ---- Lies ------------------------------------------------------------------------------------

def test_lies_of_a_server_are_errors():
    for fault, is_rest, words in (
            ("announces more", False, "Content-Length"),
            ("announces less", False, "Content-Length"),
            ("sends too much", False, "more than"),
            ("lies about the beginning", True, "Content-Range"),
            ("lies about the size", True, "Content-Range"),
            ("sends too much", True, "more than"), ("announces more", True, "Content-Length")):
        with Place() as place:
            place.hub.add(NAME)
            if is_rest:
                place.kill_at(200_000)
            place.hub.fault = fault
            done = place.pull("hf:u/r", "-q", "--retries", "0")
            expect_error(done, 6, words)
            expect(not place.path().exists(), fault)


def test_a_server_without_ranges_starts_over():
    with Place() as place:
        file = place.hub.add(NAME)
        place.kill_at(200_000)
        place.hub.fault = "no ranges"
        done = place.pull("hf:u/r")
        expect_status(done, 0)
        expect("sends no part" in done.stderr.decode(), done.stderr.decode())
        place.expect_whole(file)
        place.hub.add(NAME, 2_000_000, 3)
        expect_error(place.pull("hf:u/r", "-q"), 1, "other bytes are there")
        place.hub.commit = "f" * 40
        place.hub.cuts = [1_900_000] * 50
        expect_status(place.pull("hf:u/r", "--retries", "1"), 6)


def test_a_wrong_checksum_is_kept_aside_and_never_used():
    with Place() as place:
        file = place.hub.add(NAME)
        good, file.data = file.data, hub.model_bytes(300_000, 8)
        done = place.pull("hf:u/r", "-q")
        expect_error(done, 8, file.sha256, hashlib.sha256(file.data).hexdigest(), ".bad")
        expect(not place.path().exists() and not place.part().exists(), "it has the name")
        expect(pathlib.Path(f"{place.path()}.bad").read_bytes() == file.data, ".bad")
        expect_error(place.run("show", "hf:u/r"), 3, "is not on this machine")
        file.data = good
        expect_status(place.pull("hf:u/r"), 0)
        place.expect_whole(file)


def test_a_page_in_place_of_a_model_is_refused():
    with Place() as place:
        place.hub.files[NAME] = hub.File(b"<html>please log in</html>" * 100)
        done = place.pull(f"{place.hub.endpoint}/files/{NAME}", "-q")
        expect_error(done, 6, "no GGUF file")


def test_redirects_go_nowhere_else():
    with Place() as place:
        place.hub.add(NAME)
        for to in ("file:///etc/passwd", "http://192.0.2.1/x", "ftp://127.0.0.1/x", "gopher://h/",
                   "http://user:word@127.0.0.1/x", "//192.0.2.1/x", "http://127.0.0.1.example/x"):
            place.hub.redirect_to = to
            done = place.pull("hf:u/r", "-q", "--retries", "0")
            expect_error(done, 6, "a redirect leads to")
            expect("word" not in done.stderr.decode(), "a password is shown")
        place.hub.redirect_to = f"{place.hub.endpoint}/u/r/resolve/{hub.COMMIT}/{NAME}"
        done = place.pull("hf:u/r", "-q", "--retries", "0")
        expect_error(done, 6, "redirects more than five times")
        expect(len(place.hub.asked("registry", "resolve")) == 7 + 6, "six in a row")
        expect(not place.hub.asked("cdn"), "the CDN was asked")


def test_the_token_goes_to_its_registry_alone_and_is_never_shown():
    with Place() as place:
        place.hub.add(NAME, 300_000, sha256="0" * 64)
        place.hub.token = SECRET
        token_file = place.home / "token"
        token_file.write_text(f"{SECRET}\n")
        for env, flags in (({"HF_TOKEN": SECRET}, []), ({"HF_TOKEN_PATH": str(token_file)}, []),
                           ({"HF_HOME": str(place.home)}, []), ({}, ["--token", SECRET])):
            done = place.pull("hf:u/r", *flags, env=env)
            expect_status(done, 8)
            expect(SECRET.encode() not in done.stdout + done.stderr, "the token is shown")
        done = place.pull("hf:u/r", "-q")
        expect_error(done, 6, "401", "HF_TOKEN")
        for path, headers in place.hub.asked("cdn"):
            expect("Authorization" not in headers and SECRET not in path, "the CDN has the token")
        place.pull(f"{place.hub.cdn}/blob/{NAME}", env={"HF_TOKEN": SECRET})
        place.hub.add("ollama-x")
        place.pull("ollama:x", "--endpoint", place.hub.cdn, env={"HF_TOKEN": SECRET})
        expect(all("Authorization" not in h for _, h in place.hub.asked("cdn")), "other names")
        for name, path in hub.tree_of(place.home).items():
            expect(name == "token" or SECRET.encode() not in pathlib.Path(path).read_bytes(), name)
            expect(b"signature" not in pathlib.Path(path).read_bytes(), name)
        done = place.pull("hf:u/r", env={"HF_TOKEN": "two\nlines"})
        expect_error(done, 2, "token")
        expect("lines" not in done.stderr.decode(), "a token is shown")


def test_certificates_are_checked():
    with tempfile.TemporaryDirectory() as folder:
        key, cert = f"{folder}/key.pem", f"{folder}/cert.pem"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                   "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-keyout", key, "-out",
                   cert, "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except OSError as error:
            raise Skip("openssl makes the certificate, and it is not here") from error
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        with Place(context) as place:
            file = place.hub.add(NAME)
            done = place.pull("hf:u/r", "-q", "--retries", "0", env={"HF_TOKEN": SECRET})
            expect_error(done, 6, "certificate")
            expect(not place.hub.requests, "the server was asked all the same")
            for variable in ("SSL_CERT_FILE", "CURL_CA_BUNDLE"):
                expect_status(place.pull("hf:u/r", env={variable: cert}), 0)
            place.expect_whole(file)
            place.hub.redirect_to = place.hub.cdn.replace("https:", "http:") + "/x"
            place.hub.add("m-Q8_0.gguf", 5000)
            done = place.pull("hf:u/r:Q8_0", "-q", env={"SSL_CERT_FILE": cert})
            expect_error(done, 6, "a redirect leads to", "not https")


def tree_entry(**more):
    return {"type": "file", "path": NAME, "size": 5, "lfs": {"oid": "0" * 64, "size": 5}, **more}


def test_hostile_lists_of_files_are_refused():
    entry = tree_entry
    lists = [b"", b"{", b"null", b"[1]", b"\xff\xfe", b'{"error":"x"}', b"[" * 100_000,
             [entry(path="../x.gguf")], [entry(path="/etc/x.gguf")], [entry(path="a/../../x.gguf")],
             [entry(path="a//x.gguf")], [entry(path="x\n-Q4_K_M.gguf")], [entry(path="\x7f.gguf")],
             [entry(path="\\..\\x.gguf")], [entry(path="./x.gguf")], [entry(path=5)],
             [entry(path="x" * 100_000 + ".gguf")], [entry(lfs="x")],
             [entry(lfs={"oid": "0" * 64})],
             [entry(lfs={"oid": "z" * 64, "size": 5})], [entry(lfs={"oid": "0" * 63, "size": 5})],
             [entry(lfs={"oid": "0" * 64, "size": -5})], [entry(lfs={"oid": "0" * 64, "size": 0})],
             [entry(lfs={"oid": "0" * 64, "size": 1e300})], [entry(lfs=None, size="5")],
             [entry(lfs={"oid": "0" * 64, "size": 2 ** 62})], [entry(lfs={"oid": 7, "size": 5})],
             [entry(path=f"{i}.gguf") for i in range(20_000)],
             b'[{"type":"file","path":"a","size":1},' * 500_000]
    with Place() as place:
        for content in lists:
            place.hub.overrides = [("/tree/", lambda h, c=content: h.answer_json(c))]
            done = place.pull("hf:u/r", "-q")
            text = done.stderr.decode()
            expect(done.returncode == 6, f"{done.returncode}: {text} for {content[:1]!r:.100}")
            expect(text.startswith("carat: error: "), text)
        for sha in ("0" * 39, "../../x", 5, None, "0" * 40 + "\n"):
            place.hub.overrides = [("revision", lambda h, s=sha: h.answer_json({"sha": s}))]
            expect_error(place.pull("hf:u/r", "-q"), 6, "sha")
        place.hub.overrides = [("revision", lambda h: h.answer_json(b"x" * (20 << 20)))]
        expect_error(place.pull("hf:u/r", "-q"), 6, "bytes")
        expect(not hub.tree_of(place.home), str(hub.tree_of(place.home)))


def test_lists_end_somewhere():
    with Place() as place:
        hub_ = place.hub
        again = {"Link": f'<{hub_.endpoint}/api/models/u/r/tree/{hub.COMMIT}?x>; rel="next"'}
        hub_.overrides = [("/tree/", lambda h: h.answer_json([], **again))]
        expect_error(place.pull("hf:u/r", "-q"), 6, "pages")
        away = {"Link": '<http://192.0.2.1/x>; rel="next"'}
        hub_.overrides = [("/tree/", lambda h: h.answer_json([], **away))]
        expect_error(place.pull("hf:u/r", "-q"), 6, "another server")


def test_hostile_manifests_are_refused():
    kind = "application/vnd.ollama.image.model"
    digest = "sha256:" + "0" * 64
    with Place() as place:
        for layers in (None, 5, [], [5], [{"mediaType": "text"}], [{"mediaType": kind}],
                       [{"mediaType": kind, "digest": digest, "size": -1}],
                       [{"mediaType": kind, "digest": "sha256:../../x", "size": 5}],
                       [{"mediaType": kind, "digest": "0" * 64, "size": 5}],
                       [{"mediaType": kind, "digest": digest.upper(), "size": 5}]):
            place.hub.overrides = [("manifests", lambda h, x=layers: h.answer_json({"layers": x}))]
            expect_error(place.pull("ollama:x", "-q", "--endpoint", place.hub.endpoint), 6)


# ---- Odd answers ------------------------------------------------------------------------------

def test_refusals_say_what_to_do():
    with Place() as place:
        place.hub.add(NAME)
        place.hub.add("ollama-x")
        for status, token, words in (
                (401, "", ("401", "set HF_TOKEN")), (401, SECRET, ("401", "token", "not accepted")),
                (403, "", ("403", "licence", "set HF_TOKEN")),
                (403, SECRET, ("403", "licence", "this token")), (404, "", ("404", "no such"))):
            for pattern in ("/revision/", "/resolve/"):  # a gated model's files alone may be closed
                place.hub.overrides = [(pattern, lambda h, s=status: h.answer(s))]
                done = place.pull("hf:u/r", "-q", env={"HF_TOKEN": token})
                expect_error(done, 6, *words)
                expect(SECRET not in done.stderr.decode(), "the token is shown")
        for status in (401, 403):
            place.hub.overrides = [("/v2/", lambda h, s=status: h.answer(s))]
            done = place.pull("ollama:x", "-q", "--endpoint", place.hub.endpoint)
            expect_error(done, 6, str(status))
            expect("HF_TOKEN" not in done.stderr.decode(), done.stderr.decode())


def test_a_server_that_says_when_to_come_again_is_asked_then():
    for headers in ({"Retry-After": "1"}, {"RateLimit": '"resolvers";r=0;t=1'},
                    {"RateLimit": '"api";r=0;t=1', "RateLimit-Policy": '"api";q=500;w=300'}):
        with Place() as place:
            file, tries = place.hub.add(NAME), []
            place.hub.overrides = [("revision", lambda h, x=headers: (
                tries.append(1), h.answer(429, **x)) if len(tries) < 2
                else h.answer_json({"sha": hub.COMMIT}))]
            done = place.pull("hf:u/r", "--retries", "2")
            expect_status(done, 0)
            expect(done.stderr.decode().count("trying again in 1.0 s") == 2, done.stderr.decode())
            place.expect_whole(file)
    with Place() as place:
        for value in ("99999", "-5", "Wed, 21 Oct 2065 07:28:00 GMT", "x"):
            place.hub.overrides = [("revision", lambda h, x=value: h.answer(429, Retry_After=x))]
            done = place.pull("hf:u/r", "--retries", "0", "-q")
            expect_error(done, 6, "429")


def test_packed_bodies_are_refused():
    with Place() as place:
        file = place.hub.add(NAME)
        pages = {"/revision/": json.dumps({"sha": hub.COMMIT}).encode(), "/blob/": file.data}
        for pattern, body in pages.items():
            packed = gzip.compress(body)
            place.hub.overrides = [(pattern, lambda h, b=packed: h.answer(
                200, b, Content_Encoding="gzip"))]
            done = place.pull("hf:u/r", "-q", "--retries", "0")
            expect_error(done, 6, "Content-Encoding", "gzip")
        place.hub.overrides = [("/blob/", lambda h: h.answer(200, file.data,
                                                             Content_Encoding="identity"))]
        expect_status(place.pull("hf:u/r"), 0)
        place.expect_whole(file)


def test_a_page_in_place_of_a_list_is_refused():
    with Place() as place:
        for pattern in ("/revision/", "/tree/"):
            place.hub.overrides = [(pattern, lambda h: h.answer(
                200, b"<!doctype html><html>log in</html>", Content_Type="text/html"))]
            done = place.pull("hf:u/r", "-q")
            expect_error(done, 6, "/api/models/u/r" + pattern)


def drip(handler, head, byte):
    """Answers a byte at a time until the client leaves."""
    handler.wfile.write(head)
    while not handler.server.hub.stop.wait(0.05):
        handler.wfile.write(byte)
        handler.wfile.flush()


def test_servers_that_say_nothing_or_drip_are_given_up():
    with Place() as place:
        file = place.hub.add(NAME)
        ok = b"HTTP/1.1 200 OK\r\n"
        for pattern in ("/revision/", "/blob/"):
            for answer in (lambda h: place.hub.stop.wait(600),
                           lambda h: drip(h, ok + b"X: ", b"x"),
                           lambda h: drip(h, ok + b"Content-Length: 300000\r\n\r\nGGUF", b"x")):
                place.hub.overrides = [(pattern, answer)]
                expect_error(place.pull("hf:u/r", "-q", "--retries", "0", "--timeout", "1"), 6)
        place.hub.overrides = []
        place.part().unlink()
        expect_status(place.pull("hf:u/r"), 0)
        place.expect_whole(file)


def test_a_list_that_goes_on_for_ever_is_bounded():
    with Place() as place:
        entries = json.dumps([tree_entry(path=f"{i}.bin") for i in range(100_000)]).encode()
        place.hub.overrides = [("/tree/", lambda h: h.answer_json(entries))]
        expect_error(place.pull("hf:u/r", "-q"), 2, "there is no GGUF model")


def test_sizes_that_do_not_fit_are_errors():
    for claims in (299_999, 300_001, 5):
        with Place() as place:
            place.hub.add(NAME, 300_000, claims=claims)
            expect_error(place.pull("hf:u/r", "-q", "--retries", "0"), 6, "Content-Length",
                         str(claims))
            expect(not place.path().exists(), "it has the name")


def test_a_stopped_download_goes_on():
    with Place() as place:
        file = place.hub.add(NAME, 3_000_000)
        place.hub.pause = 0.02
        process = place.start("pull", "hf:u/r", "-q", "--timeout", "1")
        place.wait_for_part(500_000)
        process.send_signal(signal.SIGSTOP)
        time.sleep(2.5)  # longer than --timeout
        process.send_signal(signal.SIGCONT)
        text = process.communicate(timeout=program.LIMIT)[1].decode()
        expect(process.returncode == 0, text)
        place.expect_whole(file)


def test_offline_is_what_hugging_faces_programs_take_for_it():
    with Place() as place:
        place.hub.add(NAME)
        for value in ("1", "on", "YES", "True"):
            expect_error(place.pull("hf:u/r", env={"HF_HUB_OFFLINE": value}), 6, "--offline")
        expect(not place.hub.requests, "something was asked")
        for value in ("", "0", "no", "false", "off"):
            n = len(place.hub.requests)
            expect_status(place.pull("hf:u/r", "-q", env={"HF_HUB_OFFLINE": value}), 0)
            expect(len(place.hub.requests) > n, f"{value} means offline")


def test_a_checksum_may_name_its_kind():
    with Place() as place:
        file = place.hub.add(NAME)
        entry = tree_entry(lfs={"oid": f"sha256:{file.sha256}", "size": file.size})
        place.hub.overrides = [("/tree/", lambda h: h.answer_json([entry]))]
        expect_status(place.pull("hf:u/r"), 0)
        place.expect_whole(file)


def test_lists_are_asked_for_in_long_pages():
    with Place() as place:
        place.hub.add(NAME)
        expect_status(place.pull("hf:u/r"), 0)
        path = place.hub.asked("registry", "/tree/")[0][0]
        expect("recursive=true" in path and "expand" not in path, path)


if __name__ == "__main__":
    main(globals())
