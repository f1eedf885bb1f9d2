"""A stand-in for Hugging Face and the registry of ollama, on loopback: two servers, the registry
and the "CDN" that it redirects to. A test adds files and sets what goes wrong.
"""
import hashlib
import http.server
import json
import os
import random
import re
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def model_bytes(size, seed=1):
    """Bytes that begin as a GGUF file; the same for the same seed."""
    return b"GGUF" + random.Random(seed).randbytes(size - 4)


class File:
    """What the registry has under one path."""

    def __init__(self, data, **said):
        self.data = data
        self.sha256 = said.get("sha256", hashlib.sha256(data).hexdigest())
        self.size = said.get("claims", len(data))
        self.etag = said.get("etag", '"first"')


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer_json(self, value, **headers):
        text = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.answer(200, text, Content_Type="application/json", **headers)

    def do_GET(self):
        hub = self.server.hub
        with hub.lock:
            hub.requests.append((self.server.role, self.path, dict(self.headers)))
        try:
            for pattern, answer in hub.overrides:
                if re.search(pattern, self.path):
                    answer(self)
                    return
            if self.server.role == "cdn":
                self.limited_blob()
            else:
                self.registry()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    # ---- The registry ------------------------------------------------------------------------

    def registry(self):
        hub = self.server.hub
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            self.answer(401)
            return
        if re.fullmatch(r"/api/models/[^/]+/[^/]+/revision/.+", path):
            self.answer_json({"id": "u/r", "sha": hub.commit})
        elif re.fullmatch(r"/api/models/[^/]+/[^/]+/tree/[0-9a-f]{40}", path):
            self.tree()
        elif match := re.fullmatch(r"/[^/]+/[^/]+/resolve/([0-9a-f]{40})/(.+)", path):
            self.redirect(match.group(2))
        elif match := re.fullmatch(r"/v2/library/[^/]+/manifests/(.+)", path):
            self.manifest(match.group(1))
        elif match := re.fullmatch(r"/v2/library/[^/]+/blobs/sha256:([0-9a-f]+)", path):
            names = [n for n, f in hub.files.items() if f.sha256 == match.group(1)]
            self.redirect(names[0])
        elif path.startswith("/files/"):
            self.blob()
        else:
            self.answer(404)

    def tree(self):
        hub = self.server.hub
        entries = [{"type": "directory", "path": "folder", "oid": "0" * 40, "size": 0},
                   {"type": "file", "path": "README.md", "size": 5, "oid": "0" * 40}]
        entries += [{"type": "file", "path": name, "size": f.size, "oid": "0" * 40,
                     "lfs": {"oid": f.sha256, "size": f.size, "pointerSize": 135}}
                    for name, f in hub.files.items()]
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        begin, more = int(query.get("cursor", ["0"])[0]), {}
        end = begin + hub.page_size
        if end < len(entries):
            path = urllib.parse.urlsplit(self.path).path
            more["Link"] = f'<{hub.endpoint}{path}?recursive=1&cursor={end}>; rel="next"'
        self.answer_json(entries[begin:end], **more)

    def redirect(self, name):
        hub = self.server.hub
        if name not in hub.files:
            self.answer(404)
            return
        to = hub.redirect_to or f"{hub.cdn}/blob/{urllib.parse.quote(name)}?signature=secret"
        self.answer(302, Location=to)

    def manifest(self, tag):
        hub = self.server.hub
        if f"ollama-{tag}" not in hub.files:
            self.answer(404)
            return
        file = hub.files[f"ollama-{tag}"]
        self.answer_json({"schemaVersion": 2, "layers": [
            {"mediaType": "application/vnd.ollama.image.license", "size": 3,
             "digest": "sha256:" + "1" * 64},
            {"mediaType": "application/vnd.ollama.image.model", "size": file.size,
             "digest": "sha256:" + file.sha256}]})

    # ---- Bodies ------------------------------------------------------------------------------

    def limited_blob(self):
        """The body, unless too many are sent just now."""
        hub = self.server.hub
        with hub.lock:
            is_free = hub.bodies < hub.bodies_max
            hub.bodies += is_free
            hub.bodies_most = max(hub.bodies_most, hub.bodies)
        if not is_free:
            self.answer(503)
            return
        try:
            self.blob()
        finally:
            with hub.lock:
                hub.bodies -= 1

    def blob(self):
        hub = self.server.hub
        name = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).split("/", 2)[2]
        file = hub.files.get(name)
        if not file:
            self.answer(404)
            return
        data, fault = file.data, hub.fault
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        first = int(asked.group(1)) if asked else 0
        last = int(asked.group(2)) if asked and asked.group(2) else len(data) - 1
        is_stretch = last < len(data) - 1
        if fault == "sends no stretches" and is_stretch:
            asked = None
        condition = self.headers.get("If-Range")
        is_part = asked and fault != "no ranges"
        is_other = condition is not None and condition != file.etag
        if is_part and is_other and fault != "ignores If-Range":
            is_part, first = False, 0
        if is_part and is_stretch and fault == "changes":
            file.etag, hub.fault = '"second"', ""
            self.answer(416)
            return
        if is_part and first >= len(data):
            self.answer(416, Content_Range=f"bytes */{len(data)}")
            return
        body = data[first:last + 1] if is_part else data
        if is_part and is_stretch and fault == "sends less":
            last -= (last - first) // 2
            body = data[first:last + 1]
        self.send_response(206 if is_part else 200)
        self.send_header("ETag", file.etag)
        if hub.says_ranges:
            self.send_header("Accept-Ranges", "bytes")
        if is_part:
            begin, total = first, len(data)
            if fault == "lies about the beginning":
                begin += 1
            if fault == "lies about the size":
                total += 10
            end = min(last, len(data) - 1)
            self.send_header("Content-Range", f"bytes {begin}-{end}/{total}")
        self.send_body(body, fault, first)

    def send_body(self, body, fault, first):
        hub = self.server.hub
        if fault == "announces more":
            body += b"more"
        if fault == "announces less":
            body = body[:-4]
        if fault == "sends too much":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for part in (body, b"more"):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")
            return
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        end = len(body)
        if hub.cuts:
            end = min(end, hub.cuts.pop(0))
        if hub.hold:
            end = max(0, min(end, hub.hold - first))
        if fault == "waits":
            end = len(body) // 2
        for at in range(0, end, hub.block):
            self.wfile.write(body[at:min(at + hub.block, end)])
            if hub.pause:
                self.wfile.flush()
                hub.stop.wait(hub.pause)
        self.wfile.flush()
        if fault in ("stalls", "waits") or hub.hold and end < len(body):
            hub.may_go_on.wait(600)
        if fault == "waits":
            self.wfile.write(body[end:])
        elif end < len(body):
            self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass


class Hub:
    """`with Hub() as hub:` - the address is hub.endpoint."""

    def __init__(self, tls=None):
        """`tls`: an ssl.SSLContext for both servers."""
        self.lock, self.stop = threading.Lock(), threading.Event()
        self.may_go_on = threading.Event()  # ends what stalls by a cut, and what waits by the rest
        self.files, self.requests, self.overrides, self.cuts = {}, [], [], []
        self.commit, self.token, self.redirect_to, self.fault = COMMIT, "", "", ""
        self.page_size, self.block, self.pause = 1000, 1 << 16, 0
        self.hold = 0  # no byte from here on is sent: connections stall
        self.says_ranges, self.bodies, self.bodies_most, self.bodies_max = True, 0, 0, 1000
        self.servers = []
        for role in ("registry", "cdn"):
            server = Server(("127.0.0.1", 0), Handler)
            server.hub, server.role = self, role
            if tls:
                server.socket = tls.wrap_socket(server.socket, server_side=True)
            self.servers.append(server)
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        scheme = "https" if tls else "http"
        self.endpoint, self.cdn = (f"{scheme}://127.0.0.1:{s.server_address[1]}"
                                   for s in self.servers)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.may_go_on.set()
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def add(self, name, size=300_000, seed=1, **said):
        self.files[name] = File(model_bytes(size, seed), **said)
        return self.files[name]

    def asked(self, role, word=""):
        """The requests to one of the servers: (path, headers)."""
        with self.lock:
            return [(path, headers) for r, path, headers in self.requests
                    if r == role and word in path]


def tree_of(folder):
    """All files below a folder, by their path from it."""
    found = {}
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            found[os.path.relpath(path, folder)] = path
    return found
