#!/usr/bin/env python3
"""Text to token ids and back, and chat requests to prompts.

usage: tests/e2e/test_text.py PROGRAM [NAME...]      (only tests whose name contains a NAME)
"""
import json
import tempfile

import program
from program import FIXTURES, MODEL, carat, expect, expect_error, expect_status, need_json


def test_tokenize_agrees_with_the_fixture():
    cases = json.loads((FIXTURES / "tokens.json").read_text())
    for case in cases[::5]:
        flags = ["--special"] if case["parse_special"] else []
        done = carat("tokenize", MODEL, "--json", *flags, stdin=case["text"].encode())
        expect_status(done, 0)
        ids = json.loads(done.stdout)["ids"]
        expect(ids == case["ids"], f"{case['text']!r} {flags}: {ids}, {case['ids']} expected")


def test_tokenize_takes_exact_bytes():
    plain = json.loads(carat("tokenize", MODEL, "--json", stdin=b"Hi").stdout)["ids"]
    lined = json.loads(carat("tokenize", MODEL, "--json", stdin=b"Hi\n").stdout)["ids"]
    expect(len(lined) > len(plain), "the newline counts")
    done = carat("tokenize", MODEL, "--json", stdin=b"a\0b\xff\n")
    expect_status(done, 0)
    expect(json.loads(carat("tokenize", MODEL, "--json", stdin=b"").stdout) == {"ids": []}, "empty")
    with_bos = json.loads(carat("tokenize", MODEL, "--json", "--bos", stdin=b"Hi").stdout)["ids"]
    expect(with_bos == [2] + plain, "--bos")


def test_special_tokens_only_when_asked():
    def ids(*flags):
        done = carat("tokenize", MODEL, "--json", *flags, stdin=b"<turn|><|tool_call>")
        return json.loads(done.stdout)["ids"]
    expect(106 not in ids() and 48 in ids(), "by default user-defined ones")
    expect(ids("--special") == [106, 48], "--special")
    expect(not {106, 48} & set(ids("--plain")), "--plain")
    expect_error(carat("tokenize", MODEL, "x", "--plain", "--special"), 2, "--plain")


def test_offsets_say_where_each_token_begins():
    def offsets(text, *flags):
        done = carat("tokenize", MODEL, "--offsets", "--json", *flags, stdin=text)
        expect_status(done, 0)
        result = json.loads(done.stdout)
        expect(len(result["ids"]) == len(result["offsets"]), str(result))
        return result["offsets"]
    text = "Hi  there, w\u00f6rld \u2581x \U0001f600<|tool_call>\u03b2\n\n<0x41>".encode()
    text += b"\0\xff end"
    places = offsets(text) + [len(text)]
    done = carat("tokenize", MODEL, "--offsets", stdin=text)
    lines = done.stdout.decode().splitlines()
    expect([int(line[9:16]) for line in lines] == places[:-1], "the listing has the same offsets")
    for line, begin, end in zip(lines, places, places[1:]):
        part, piece = text[begin:end], line[18:].removesuffix("  (special)").encode()
        is_byte = len(part) == 1 and piece == b"<0x%02X>" % part[0]
        shown = part.replace(b" ", "\u2581".encode()).replace(b"\n", b"\\n")
        expect(is_byte or shown == piece, f"{part!r} is not {piece!r}")
    hi = offsets(b"Hi")
    expect(offsets(b"Hi", "--bos") == [0] + hi, "<bos> of --bos has no bytes")
    expect(offsets(b"<bos>Hi", "--bos", "--special") == [0] + [5 + at for at in hi],
           "<bos> of the text has five")
    expect(offsets(b"<bos>Hi", "--bos") == [0] + offsets(b"<bos>Hi"), "<bos> that is text")
    expect(offsets(b"") == [], "no text")
    expect_error(carat("tokenize", MODEL, "x", "--offsets", "--ids"), 2, "--offsets")


def test_token_listing_escapes_control_characters():
    done = carat("tokenize", MODEL, stdin=b"\x1b[31m\x07\n")
    expect_status(done, 0)
    expect(b"\x1b" not in done.stdout and b"\x07" not in done.stdout, str(done.stdout))


def test_detokenize_is_the_way_back():
    text = "Hello, wörld! 1234\n\tend"
    ids = json.loads(carat("tokenize", MODEL, "--json", "--plain",
                           stdin=text.encode()).stdout)["ids"]
    listed = " ".join(map(str, ids))
    expect(carat("detokenize", MODEL, stdin=listed.encode()).stdout == text.encode(), "stdin")
    done = carat("detokenize", MODEL, "--json", *ids)
    expect(json.loads(done.stdout)["text"] == text, "arguments")
    expect_error(carat("detokenize", MODEL, "999999"), 2, "999999")
    expect_error(carat("detokenize", MODEL, "1 x"), 2, "byte")


def test_template_agrees_with_the_fixture():
    need_json()
    cases = json.loads((FIXTURES / "chat.json").read_text())
    for case in cases[::4]:
        done = carat("template", "--size", case["size"], "-",
                     stdin=json.dumps(case).encode())
        expect_status(done, 0)
        wanted = case["prompt"].encode()
        is_same = done.stdout in (wanted, wanted + b"<|turn>model\n")
        expect(is_same, f"{case['name']}: {done.stdout!r}")


def test_template_takes_the_size_of_a_model():
    need_json()
    request = {"messages": [{"role": "user", "content": "Hello"}]}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(request, file)
        file.flush()
        by_model = carat("template", MODEL, file.name)
        by_size = carat("template", "--size", "small", file.name)
        expect_status(by_model, 0)
        expect(by_model.stdout == by_size.stdout, str(by_model.stdout))


def test_bad_requests_are_explained():
    need_json()
    for text, word in ((b"{", "line 1"), (b"[]", ""), (b'{"messages": 3}', "messages"),
                       (b"", "JSON")):
        expect_error(carat("template", "--size", "small", "-", stdin=text), 2, word)
    expect_error(carat("template", "--size", "small"), 2, "REQUEST.json")
    expect_error(carat("template", "--size", "small", "Hello"), 2, "Hello: No such file", "JSON")


def test_a_chat_from_a_pipe_takes_line_ends_of_windows():
    text = b"Hi\n/set seed 5\n\"\"\"\none\ntwo\n\"\"\"\n/exit\n"
    ask = ("chat", MODEL, "--temp", "0", "-n", "3", "-q")
    done = carat(*ask, stdin=text.replace(b"\n", b"\r\n"))
    expect_status(done, 0)
    expect(done.stdout == carat(*ask, stdin=text).stdout and b"error" not in done.stderr, str(done))


def test_what_exceeds_the_model_is_no_matter_of_the_context():
    most = json.loads(carat("show", MODEL, "--json").stdout)["model"]["n_ctx_train"]
    expect_error(carat("run", MODEL, "Hi", "-c", most + 1), 2, f"has {most} positions")
    expect_error(carat("show", MODEL, "--fit", most + 1), 2, f"has {most} positions")
    words = b"word " * (most + 1)
    expect_error(carat("run", MODEL, "-c", 16, stdin=b"word " * 20), 2, "raise the context size")
    done = carat("run", MODEL, "-c", most, stdin=words)
    expect_error(done, 2, "the model has no more")
    expect(b"-c" not in done.stderr, str(done.stderr))


if __name__ == "__main__":
    program.main(globals())
