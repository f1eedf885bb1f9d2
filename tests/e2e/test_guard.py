#!/usr/bin/env python3
"""`carat serve` among people who should not use it: routes without a key, keys of any form, pages
of other sites, names that lead here, and what the log says of all that."""
import json
import re
import socket

import program
from program import ROOT, expect
from server import Server, need_server

KEY = "key-of-this-test-0123456789"
BEARER = {"Authorization": f"Bearer {KEY}"}
CHAT = "/v1/chat/completions"
# Everything else is closed as soon as there are keys.
OPEN = {"/health", "/v1/health", "/health/ready", "/health/live", "/", "/ui/*", "/openapi.yaml",
        "/favicon.ico", "/metrics"}  # metrics on this machine alone


def routes():
    text = (ROOT / "src/server/routes.c").read_text(encoding="utf-8")
    found = re.findall(r'"(GET|POST|DELETE)", "(/[^"]*)"', text)
    expect(len(found) > 40, f"{len(found)} routes were found in routes.c")
    return found


def chat(**more):
    return {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, **more}


def raw(server, request):
    """Sends bytes; the whole answer until the server closes."""
    with socket.create_connection((server.host, server.port), timeout=program.LIMIT) as s:
        s.sendall(request)
        data = b""
        while piece := s.recv(65536):
            data += piece
        return data


def test_no_route_is_open_by_omission():
    need_server()
    with Server("demo", "--api-key", KEY) as server:
        for method, path in routes():
            sent = path.replace("*", "x")
            for how in {method, "GET", "HEAD", "POST", "PUT", "DELETE"}:
                status = server.ask(how, sent, "{}" if how == "POST" else None)[0]
                is_open = path in OPEN and how in ("GET", "HEAD")
                expect(is_open or status == 401, f"{how} {sent} without a key: {status}")
        for path in ("/nothing", "/v1", "//v1/models", "/V1/models", "/v1/models/", "/ui",
                     "/metrics/"):
            expect(server.ask("GET", path)[0] == 401, f"{path} without a key")
        expect(server.ask("GET", "/health")[0] == 200, "health is open")


def test_errors_have_the_form_of_their_api():
    with Server("demo", "--api-key", KEY) as server:
        status, headers, body = server.ask("POST", CHAT, chat())
        expect(status == 401 and headers["WWW-Authenticate"] == "Bearer", headers)
        expect(body["error"]["type"] == "authentication_error"
               and body["error"]["code"] == "invalid_api_key", body)
        body = server.ask("POST", "/v1/messages", chat())[2]
        expect(body["type"] == "error" and body["error"]["type"] == "authentication_error", body)
        body = server.ask("POST", "/api/chat", chat())[2]
        expect(isinstance(body["error"], str), body)


def test_keys_of_any_form_are_only_wrong():
    with Server("demo", "--api-key", KEY) as server:
        head = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        for key, status in (KEY.encode(), 200), ("schlüssel-🔑".encode(), 401), \
                (b"\xff\xfe", 401), (b"k" * 8000, 401), (b"k" * (1 << 20), 431), (b"", 401), \
                (KEY.encode() + b" " + KEY.encode(), 401), (KEY[:-1].encode(), 401):
            try:
                answer = raw(server, head + b"x-api-key: " + key + b"\r\n\r\n")
            except ConnectionError:  # the rest of a megabyte was still on its way
                answer = b"HTTP/1.1 431 "
            expect(answer.startswith(b"HTTP/1.1 %d " % status), f"{key[:20]}: {answer[:80]}")
        status, _, body = server.ask("GET", f"/v1/models?api_key={KEY}", headers=BEARER)
        expect(status == 400 and "api_key" in body["error"]["message"], body)
        expect(KEY not in json.dumps(body), "the key is not repeated")


def test_the_log_has_no_keys_and_no_forged_lines():
    forged = "x\nlevel=error event=forged"
    with Server("demo", "--api-key", KEY) as server:
        for headers in ({"x-api-key": "wrong-key-of-this-test"}, BEARER,
                        {**BEARER, "x-request-id": "a\tb"},
                        {**BEARER, "User-Agent": "\x1b[31mred"},
                        {**BEARER, "Origin": "https://evil.example\x85"}):
            try:
                server.ask("POST", CHAT, chat(user=forged, model=forged), headers)
            except ConnectionError:
                pass  # refused by its framing
        server.ask("GET", "/x%20level=error%20event=forged%C2%85%E2%80%A8y")
        server.ask("GET", f"/v1/models?key={KEY}")
        server.stop()
        log = server.whole_log()
        expect(KEY not in log and "wrong-key-of-this-test" not in log, "a key is in the log")
        for forbidden in "\x1b", "\x85", "\u2028":
            expect(forbidden not in log, f"{forbidden!r} is in the log")
        for line in log.splitlines():
            expect(not re.match(r"(level=error )?event=forged|level=error", line), line)


def test_pages_of_other_sites_are_refused_and_listed_ones_are_not():
    with Server("demo", "--cors-origin", "https://chat.example") as server:
        for origin in ("https://evil.example", "null", "http://chat.example",
                       "https://chat.example.x"):
            for method, path, body in ("POST", CHAT, chat()), ("GET", "/v1/models", None), \
                    ("GET", "/health", None):
                status, headers, _ = server.ask(method, path, body, {"Origin": origin})
                expect(status == 403, f"{origin} {path}: {status}")
                expect("Access-Control-Allow-Origin" not in headers, origin)
        for origin in "https://chat.example", "http://localhost:3000", "http://127.0.0.1:5173":
            status, headers, _ = server.ask("POST", CHAT, chat(), {"Origin": origin})
            expect(status == 200 and headers["Access-Control-Allow-Origin"] == origin, origin)
            asks = {"Origin": origin, "Access-Control-Request-Method": "POST",
                    "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os"}
            status, headers, _ = server.ask("OPTIONS", CHAT, headers=asks)
            expect(status == 204 and headers["Access-Control-Allow-Origin"] == origin, headers)
            expect("x-stainless-os" in headers["Access-Control-Allow-Headers"], headers)


def test_a_preflight_needs_no_key_and_what_follows_it_does():
    """Browsers send no key with a preflight; a page must be able to read that its key is wrong."""
    origin = "https://chat.example"
    asks = {"Origin": origin, "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type"}
    with Server("demo", "--api-key", KEY, "--cors-origin", origin) as server:
        status, headers, body = server.ask("OPTIONS", CHAT, headers=asks)
        expect(status == 204 and not body, f"{status} {body}")
        expect(headers["Access-Control-Allow-Origin"] == origin, headers)
        expect("authorization" in headers["Access-Control-Allow-Headers"], headers)
        status, headers, _ = server.ask("POST", CHAT, chat(), {"Origin": origin})
        expect(status == 401 and headers["Access-Control-Allow-Origin"] == origin, headers)
        status, headers, _ = server.ask("POST", CHAT, chat(), {
            "Origin": origin, "Authorization": f"Bearer {KEY}"})
        expect(status == 200 and headers["Access-Control-Allow-Origin"] == origin, headers)
        status, headers, _ = server.ask("OPTIONS", CHAT, headers={**asks,
                                                                  "Origin": "https://evil.example"})
        expect("Access-Control-Allow-Origin" not in headers, headers)
        status, headers, _ = server.ask("OPTIONS", CHAT)
        expect(status == 401, f"OPTIONS that is no preflight: {status}")


def test_head_of_any_route_has_no_body_and_the_connection_goes_on():
    need_server()
    with Server("demo") as server:
        for path in sorted({p.replace("*", "x") for _, p in routes()}) + ["/nothing"]:
            connection = server.connect()
            for _ in range(2):
                connection.request("HEAD", path)
                reply = connection.getresponse()
                expect(reply.read() == b"", f"HEAD {path} has a body")
                expect(reply.status in (200, 404, 405, 501), f"HEAD {path}: {reply.status}")
                expect(reply.status != 405 or "POST" in reply.headers["Allow"]
                       or "DELETE" in reply.headers["Allow"], f"HEAD {path}: {reply.headers}")
            connection.request("GET", "/health/live")
            reply = connection.getresponse()
            expect(reply.status == 200 and json.loads(reply.read()), f"after HEAD {path}")
            connection.close()


def test_names_that_others_let_lead_here_are_refused():
    with Server("demo", "--allowed-host", "chat.example") as server:
        for host, status in ("evil.example", 403), ("localhost.evil.example", 403), \
                ("chat.example:8080", 200), ("127.0.0.1", 200), ("LOCALHOST:1", 200), \
                ("[::1]", 200), ("192.168.1.1", 403):
            for path in "/v1/models", "/health", "/":
                got = server.ask("GET", path, headers={"Host": host})[0]
                expect(got == status, f"{host} {path}: {got}, not {status}")


def test_a_key_has_a_limit_of_requests():
    endless = chat(max_tokens=60000, stream=True, ignore_eos=True)
    with Server(program.long_model(), "--ctx-size", 65536, "--api-key", KEY, "--api-key", KEY + "2",
                "--requests-per-key", "1") as server:
        with server.open(CHAT, endless, BEARER) as stream:
            expect(stream.status == 200 and next(iter(stream)), "the first goes on")
            status, headers, body = server.ask("POST", CHAT, chat(), BEARER)
            expect(status == 429 and headers["Retry-After"], body)
            other = {"x-api-key": KEY + "2"}
            expect(server.ask("POST", CHAT, chat(), other)[0] == 200, "another key has its own")
        server.wait_until(lambda: server.ask("POST", CHAT, chat(), BEARER)[0] == 200)


if __name__ == "__main__":
    program.main(globals())
