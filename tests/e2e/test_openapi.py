#!/usr/bin/env python3
"""The specification of the server and the server: the same routes, and the same file.

usage: tests/e2e/test_openapi.py PROGRAM [NAME...]      (only tests whose name contains a NAME)
"""
import re

import program
from program import ROOT, expect
from server import Server

SPECIFICATION = ROOT / "docs/openapi.yaml"
METHODS = ("get", "post", "delete", "put", "patch")


def specified():
    """(method, path) of the specification, with {} for whatever stands there."""
    found, methods, path = set(), {}, None
    for line in SPECIFICATION.read_text(encoding="utf-8").splitlines():
        head = re.match(r"  (/\S*):$", line)
        member = re.match(r"    (\w+|\$ref):\s*(?:\"#/paths/(.*)\")?", line)
        if line and not line.startswith(" "):
            path = None
        elif head:
            path = head[1]
        elif path and member and member[1] in METHODS:
            methods.setdefault(path, []).append(member[1])
        elif path and member and member[2]:
            methods[path] = methods[member[2].replace("~1", "/")]
    for path, names in methods.items():
        found |= {(name.upper(), re.sub(r"\{\w+\}", "{}", path)) for name in names}
    return found


def served():
    text = (ROOT / "src/server/routes.c").read_text(encoding="utf-8")
    rows = re.findall(r'^    (?:\{|ABSENT\()"([A-Z]+)", "([^"]+)"', text, re.MULTILINE)
    return {(method, path.replace("*", "{}")) for method, path in rows}


def test_the_specification_has_every_route_of_the_server():
    expect(len(served()) > 40, "the table of routes is not found")
    missing = served() - specified()
    expect(not missing, f"docs/openapi.yaml lacks {sorted(missing)}")


def test_the_server_has_every_route_of_the_specification():
    missing = specified() - served()
    expect(not missing, f"the server lacks {sorted(missing)}")


def test_the_server_answers_every_route_and_gives_the_file():
    with Server("demo") as server:
        for method, path in sorted(specified()):
            if path in ("/drain", "/ui/{}", "/favicon.ico", "/v1/models/{}"):
                continue  # ends the server, or names what need not be there
            body = "{}" if method == "POST" else None
            headers = {"Content-Type": "application/json"} if body else {}
            status, _, _ = server.ask(method, path.replace("{}", "x"), body, headers)
            expect(status not in (404, 405), f"{method} {path}: {status}")
        status, headers, text = server.ask("GET", "/openapi.yaml")
        expect(status == 200, f"/openapi.yaml: {status}")
        expect(text == SPECIFICATION.read_text(encoding="utf-8"), "another file is served")


program.main(globals())
