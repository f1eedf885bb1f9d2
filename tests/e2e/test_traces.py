#!/usr/bin/env python3
"""serve --otlp: spans of requests as a collector of OpenTelemetry gets them, and collectors that do
not behave.

usage: tests/e2e/test_traces.py PROGRAM [NAME...]      (only tests whose name contains a NAME)
"""
import subprocess
import threading
import time

from collector import Collector
from program import (LIMIT, Skip, carat, environment, expect, expect_error, libraries, long_model,
                     main, wait_until)
from server import Server, need_server, text_of
from test_tls import certificates

CHAT = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def need_traces():
    need_server()
    if "libcurl" not in libraries():
        raise Skip("built without libcurl")


class Traced(Server):
    """A server that sends its spans to a collector."""

    def __init__(self, collector, *options, model="demo", path="", **variables):
        need_traces()
        super().__init__(model, "--otlp", collector.url + path, *options,
                         env=environment(**variables))


def tokenize(server, n=1):
    """The quickest request that has a span, n times."""
    connection = server.connect()
    for _ in range(n):
        connection.request("POST", "/tokenize", '{"content": "Hi"}')
        reply = connection.getresponse()
        reply.read()
        expect(reply.status == 200, f"status {reply.status}")
    connection.close()


def test_a_request_is_a_span_with_what_is_known_of_it():
    with Collector() as collector, Traced(collector) as server:
        before = time.time_ns()
        request = {**HI, "model": "mine", "temperature": 0.5, "top_p": 0.5, "n": 2,
                   "ignore_eos": True}
        status, headers, body = server.ask("POST", CHAT, request)
        expect(status == 200, str(body))
        span, = collector.wait_for(1)
        after = time.time_ns()
        slack = 10 ** 9  # two clocks
        expect(before - slack < span.begin <= span.end < after + slack, "times")
        expect(span.name == f"POST {CHAT}" and not span.parent and not span.is_error, span.name)
        expect(span.resource["service.name"] == "carat" and span.resource["service.version"],
               str(span.resource))
        usage = body["usage"]
        wanted = {
            "http.request.method": "POST", "http.route": CHAT, "url.path": CHAT,
            "url.scheme": "http", "http.response.status_code": 200,
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": "carat",
            "gen_ai.request.model": "mine", "gen_ai.response.model": "demo",
            "gen_ai.request.id": headers["x-request-id"], "gen_ai.request.max_tokens": 4,
            "gen_ai.request.temperature": 0.5, "gen_ai.request.top_p": 0.5,
            "gen_ai.request.choice.count": 2,
            "gen_ai.usage.input_tokens": usage["prompt_tokens"],
            "gen_ai.usage.output_tokens": usage["completion_tokens"],
            "gen_ai.response.finish_reasons": [c["finish_reason"] for c in body["choices"]]}
        for name, value in wanted.items():
            expect(span[name] == value, f"{name}: {span[name]}, {value} expected")
        first, queue, prefill, decode, whole = (span["gen_ai.latency." + name] for name in (
            "time_to_first_token", "time_in_queue", "time_in_model_prefill",
            "time_in_model_decode", "e2e"))
        expect(0 < first <= whole and queue >= 0 and prefill > 0 and decode > 0, "times")
        expect(whole <= (span.end - span.begin) / 1e9 + 1e-3, f"{whole} s of the span")
        expect(server.stop() == 0, "a clean end")
        expect(f" request trace={span.trace} id={headers['x-request-id']} " in server.whole_log(),
               "the log does not name the trace")


def test_every_interface_has_spans():
    requests = {
        CHAT: ({**HI, "stream": True}, "chat"),
        "/v1/completions": ({"prompt": "Hi", "max_tokens": 2}, "text_completion"),
        "/v1/responses": ({"input": "Hi", "max_output_tokens": 2}, "chat"),
        "/v1/messages": (HI, "chat"),
        "/api/chat": ({**HI, "options": {"num_predict": 2}}, "chat"),
        "/api/generate": ({"prompt": "Hi", "options": {"num_predict": 2}}, "text_completion"),
        "/tokenize": ({"content": "Hi"}, None)}
    with Collector() as collector, Traced(collector) as server:
        for path, (body, _) in requests.items():
            status, _, text = server.ask("POST", path, body)
            expect(status == 200, f"{path}: {text}")
        found = {span["http.route"]: span for span in collector.wait_for(len(requests))}
        for path, (_, operation) in requests.items():
            span = found[path]
            expect(span["gen_ai.operation.name"] == operation, f"{path}: {span.attributes}")
            tokens = span["gen_ai.usage.output_tokens"]
            expect((tokens is None) == (operation is None), f"{path}: {tokens}")


def test_the_trace_of_the_caller_goes_on():
    with Collector() as collector, Traced(collector) as server:
        for value in f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-ff", \
                f"01-{TRACE}-{PARENT}-01", f"cc-{TRACE}-{PARENT}-01-more":
            server.ask("POST", "/tokenize", {"content": "Hi"}, {"traceparent": value})
        spans = collector.wait_for(4)
        expect(all(s.trace == TRACE and s.parent == PARENT for s in spans), "another trace")
        expect(len({s.id for s in spans} | {PARENT}) == 5, "ids of spans")


def test_a_caller_that_does_not_record_is_not_recorded():
    with Collector() as collector, Traced(collector) as server:
        for flags in "00", "02", "fe":
            server.ask("POST", "/tokenize", {"content": "Hi"},
                       {"traceparent": f"00-{TRACE}-{PARENT}-{flags}"})
        tokenize(server)
        spans = collector.wait_for(1)
        expect(server.stop() == 0, "a clean end")
        expect(len(collector.spans()) == 1 and spans[0].trace != TRACE, "it was recorded")


def test_wrong_callers_begin_a_new_trace():
    wrong = ["", "00", f"00-{TRACE}-{PARENT}", f"00-{TRACE}-{PARENT}-1", f"00-{TRACE}-{PARENT}-0g",
             f"00-{TRACE.upper()}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01",
             f"00-{TRACE}-{'0' * 16}-01", f"ff-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-01-",
             f"00-{TRACE}-{PARENT}-01-00", f"01-{TRACE}-{PARENT}-01x", f"0x-{TRACE}-{PARENT}-01",
             f"00_{TRACE}-{PARENT}-01", f"00-{TRACE[1:]}-{PARENT}-001", "x" * 4000,
             f"00-{TRACE}-{PARENT}-01, 00-{TRACE}-{PARENT}-01"]
    with Collector() as collector, Traced(collector) as server:
        for value in wrong:
            server.ask("POST", "/tokenize", {"content": "Hi"}, {"traceparent": value})
        connection = server.connect()
        connection.putrequest("POST", "/tokenize")
        for _ in range(2):
            connection.putheader("traceparent", f"00-{TRACE}-{PARENT}-01")
        connection.putheader("Content-Length", "2")
        connection.endheaders(b"{}")
        connection.getresponse().read()
        connection.close()
        spans = collector.wait_for(len(wrong) + 1)
        expect(all(s.trace != TRACE and not s.parent for s in spans), "a wrong parent")
        expect(len({s.trace for s in spans}) == len(spans), "traces are alike")


def test_refusals_are_told_and_probes_are_not():
    with Collector() as collector, Traced(collector, "--api-key", "k3y") as server:
        key = {"Authorization": "Bearer k3y"}
        for path in "/health", "/health/live", "/metrics", "/v1/models", "/nothing", "/":
            server.ask("GET", path, None, key)
        expect(server.ask("POST", CHAT, {"messages": 1}, key)[0] == 400, "status")
        expect(server.ask("POST", CHAT, HI)[0] == 401, "status")
        spans = collector.wait_for(2)
        expect([s["http.response.status_code"] for s in spans] == [400, 401], "which spans")
        expect([s["error.type"] for s in spans] == ["400", "401"], "kinds of errors")
        expect(not any(s.is_error for s in spans), "clients' mistakes are not the server's")
        expect(spans[0]["gen_ai.usage.input_tokens"] is None, "tokens of no answer")
        expect(server.stop() == 0 and len(collector.spans()) == 2, "more spans")


def test_no_prompt_answer_or_key_is_sent():
    with Collector() as collector, Traced(collector, "--api-key", "xylophone-key") as server:
        words = "Alphorn bassoon clarinet"
        request = {"messages": [{"role": "system", "content": words},
                                {"role": "user", "content": words}], "max_tokens": 8,
                   "model": "é" * 200, "user": "trombone", "stop": ["ukulele"], "ignore_eos": True}
        status, _, body = server.ask("POST", CHAT, request, {
            "Authorization": "Bearer xylophone-key", "x-session-id": "trombone"})
        expect(status == 200, str(body))
        span, = collector.wait_for(1)
        name = span["gen_ai.request.model"]
        expect(len(name.encode()) < 132 and name.startswith("é" * 60), "the name of the model")
        sent = b"".join(collector.bodies).decode()
        answer = body["choices"][0]["message"]["content"]
        for secret in "lphorn", "lophone", "rombone", "kulele", "127.0.0.1":
            expect(secret not in sent, f"{secret!r} is sent")
        expect(len(answer) < 12 or answer not in sent, "the answer is sent")


def test_a_client_that_leaves_has_a_span():
    with Collector() as collector, Traced(collector, model=long_model()) as server:
        stream = server.open(CHAT, {**HI, "max_tokens": 200000, "stream": True,
                                    "ignore_eos": True})
        events = iter(stream)
        while not text_of([next(events)]):
            pass
        stream.close()
        span, = collector.wait_for(1)
        expect(span["gen_ai.response.finish_reasons"] == ["cancelled"], str(span.attributes))
        expect(not span.is_error and span["gen_ai.usage.output_tokens"] > 0, "its tokens")


def test_many_clients_at_once_have_a_span_each():
    with Collector() as collector, Traced(collector) as server:
        threads = [threading.Thread(target=tokenize, args=(server, 16)) for _ in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
        spans = collector.wait_for(64 * 16)
        expect(len(spans) == 64 * 16 and len({s.id for s in spans}) == 64 * 16, "ids")
        expect(server.metric("carat_traces_dropped_total") == 0, "dropped")
        expect(max(len(body) for body in collector.bodies) < 1 << 20, "bodies are too long")
        server.wait_until(lambda: server.metric("carat_traces_sent_total") == 64 * 16)


def test_what_is_left_is_sent_at_the_end():
    with Collector() as collector, Traced(collector) as server:
        tokenize(server, 20)
        expect(server.stop() == 0, "a clean end")
        expect(len(collector.spans()) == 20, f"{len(collector.spans())} of 20 spans")


def test_a_collector_that_is_busy_is_asked_again():
    with Collector(lambda number: (503, 429, 200)[min(number, 2)]) as collector, \
            Traced(collector) as server:
        tokenize(server, 3)
        collector.wait_for(3)
        server.wait_until(lambda: server.metric("carat_traces_sent_total") == 3)
        expect(server.metric("carat_traces_dropped_total") == 0, "dropped")


def test_spans_that_a_collector_has_refused_are_dropped():
    """It refuses one of each body, and takes the others."""
    for number in '"1"', "1":
        text = f'{{"partialSuccess":{{"rejectedSpans":{number},"errorMessage":"secret"}}}}'
        reply = f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()
        with Collector(lambda _, reply=reply: lambda h: h.wfile.write(reply)) as collector, \
                Traced(collector) as server:
            tokenize(server, 20)
            server.wait_until(lambda: server.metric("carat_traces_sent_total") +
                              server.metric("carat_traces_dropped_total") == 20)
            dropped = server.metric("carat_traces_dropped_total")
            expect(dropped == len(collector.bodies), f"{dropped} of {len(collector.bodies)}")
            expect(server.stop() == 0 and "secret" not in server.whole_log(), "its words")


def test_a_dead_collector_costs_spans_alone():
    with Collector() as collector:
        pass
    with Traced(collector) as server:
        tokenize(server, 5)
        expect(server.chat("Hi", max_tokens=2)[0] == 200, "an answer")
        server.wait_until(lambda: server.metric("carat_traces_dropped_total") > 0)
        tokenize(server, 5)
        begin = time.monotonic()
        expect(server.stop() == 0, "a clean end")
        expect(time.monotonic() - begin < 20, "it took too long to end")
        log = server.whole_log()
        expect(log.count(" warning traces_dropped ") == 1, log)


def test_a_collector_that_hangs_holds_nobody_up():
    """Its ring becomes full, too. All tries of a batch would take 47 seconds."""
    with Collector(lambda number: collector.hang) as collector, Traced(collector) as server:
        tokenize(server)
        wait_until(lambda: collector.bodies, "the first batch")
        tokenize(server, 2500)
        expect(server.metric("carat_traces_dropped_total") > 0, "the ring has no end")
        expect(server.chat("Hi", max_tokens=2)[0] == 200, "an answer")
        begin = time.monotonic()
        expect(server.stop() == 0, "a clean end")
        expect(time.monotonic() - begin < 20, "it took too long to end")


def test_hostile_collectors_cost_spans_alone():
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    ways = {
        "endless body": lambda h: collector.pour(
            h, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk),
        "endless head": lambda h: collector.pour(h, b"HTTP/1.1 200 OK\r\n",
                                                 b"X-A: " + b"x" * 1000 + b"\r\n"),
        "endless interim replies": lambda h: collector.pour(
            h, b"", b"HTTP/1.1 100 Continue\r\nX-A: b\r\n\r\n" * 100),
        "redirect": lambda h: h.wfile.write(
            f"HTTP/1.1 307 Go\r\nLocation: {collector.url}/other\r\nContent-Length: 0\r\n\r\n"
            .encode()),
        "refusal": 400, "failure": 500, "nonsense": lambda h: h.wfile.write(b"\0" * 10000)}
    for name, way in ways.items():
        with Collector(lambda number, way=way: way) as collector, Traced(collector) as server:
            tokenize(server)
            if name != "nonsense":  # may have been noise of the network: asked again
                server.wait_until(lambda: server.metric("carat_traces_dropped_total") == 1)
                expect(len(collector.bodies) == 1, f"{name}: {collector.paths}")
            expect(server.chat("Hi", max_tokens=2)[0] == 200, name)
            expect(server.stop() == 0, f"{name}: a clean end")
            expect(not any("other" in path for path in collector.paths), name)


def test_addresses_have_a_path_once():
    for path, asked in (("", "/v1/traces"), ("/", "/v1/traces"), ("/v1/traces", "/v1/traces"),
                        ("/v1/traces//", "/v1/traces"), ("/otlp/v1/traces/", "/otlp/v1/traces"),
                        ("/otlp/", "/otlp/v1/traces"), ("/a?b=c", "/a/v1/traces?b=c")):
        with Collector() as collector, Traced(collector, path=path) as server:
            tokenize(server)
            collector.wait_for(1)
            expect(collector.paths == [asked], f"{path}: {collector.paths}")
            head = collector.heads[0]
            expect(head["Content-Type"] == "application/json" and not head["Expect"], str(head))


def test_the_variables_of_opentelemetry_are_heard():
    with Collector() as collector:
        need_traces()
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "chat",
                     "OTEL_EXPORTER_OTLP_HEADERS":
                         "authorization=Basic%20key%2Fof-chat, x-tenant = 7",
                     "OTEL_RESOURCE_ATTRIBUTES": "service.name=other,k8s.pod.name=a%2Fb"}
        with Server("demo", env=environment(**variables)) as server:
            tokenize(server)
            span, = collector.wait_for(1)
            expect(span.resource["service.name"] == "chat", str(span.resource))
            expect(span.resource["k8s.pod.name"] == "a/b", str(span.resource))
            head = collector.heads[0]
            expect(head["Authorization"] == "Basic key/of-chat", str(head))
            expect(head["x-tenant"] == "7", str(head))
            expect(server.stop() == 0, "a clean end")
            expect("of-chat" not in server.whole_log(), server.whole_log())  # ids have no such text
        whole = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": collector.url + "/my/own",
                 "OTEL_RESOURCE_ATTRIBUTES": "service.name=other"}
        with Server("demo", env=environment(**variables | whole | {"OTEL_SERVICE_NAME": ""})) as \
                server:
            tokenize(server)
            span = collector.wait_for(2)[1]
            expect(collector.paths[1] == "/my/own", str(collector.paths))
            expect(span.resource["service.name"] == "other", str(span.resource))
        for off in {"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}:
            with Server("demo", env=environment(**variables, **off)) as server:
                tokenize(server)
                expect(server.stop() == 0, "a clean end")
        expect(len(collector.bodies) == 2, "it was switched off")


def test_certificates_of_collectors_are_checked():
    with certificates() as path:
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                   "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=collector",
                   "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", path("a.key"), "-out",
                   path("a.crt")]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except FileNotFoundError:
            raise Skip("openssl makes the certificate, and it is not here") from None
        with Collector(certificate=(path("a.crt"), path("a.key"))) as collector:
            with Traced(collector) as server:
                tokenize(server)
                server.wait_until(lambda: server.metric("carat_traces_dropped_total") == 1)
                expect(not collector.bodies, "nobody knows this certificate")
            with Traced(collector, OTEL_EXPORTER_OTLP_CERTIFICATE=path("a.crt")) as server:
                tokenize(server)
                collector.wait_for(1)


def test_addresses_that_are_none_are_refused():
    if "libcurl" not in libraries():
        if "libmicrohttpd" in libraries():
            done = carat("serve", "demo", "--port", "0", "--otlp", "http://127.0.0.1:4318")
            expect(done.returncode and b"libcurl4-gnutls-dev" in done.stderr, str(done.stderr))
            return
        raise Skip("built without libmicrohttpd")
    need_traces()
    for spelling in "--otlp", "--otlp-traces-endpoint":
        for url in ("localhost:4318", "grpc://127.0.0.1:4317", "file:///etc/passwd", "http://",
                    "http://127.0.0.1:99999", "ftp://127.0.0.1/", "nonsense", "http://a b/",
                    "http://127.0.0.1:4318/#part"):
            expect_error(carat("serve", "demo", "--port", "0", spelling, url), 2, "--otlp", "4318")
        done = carat("serve", "demo", "--port", "0", spelling, "http://me:secret@127.0.0.1:4318")
        expect_error(done, 2, "--otlp")
        expect(b"secret" not in done.stderr, "a password is shown")
    far = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://192.0.2.1:4318"}
    for fields, words in (("a=b", "--insecure"), ("a", "expected"), ("a=%zz", "expected"),
                          ("a=%0d%0ab", "expected"), ("a b=c", "expected")):
        env = environment(**far, OTEL_EXPORTER_OTLP_HEADERS=fields)
        expect_error(carat("serve", "demo", "--port", "0", env=env), 2,
                     "OTEL_EXPORTER_OTLP_HEADERS", words)
    env = environment(**far, OTEL_RESOURCE_ATTRIBUTES="a")
    expect_error(carat("serve", "demo", "--port", "0", env=env), 2, "OTEL_RESOURCE_ATTRIBUTES")


if __name__ == "__main__":
    main(globals())
