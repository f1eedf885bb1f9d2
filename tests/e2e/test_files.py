#!/usr/bin/env python3
"""Result files: an old file survives every failure, and no file that is read is written over.

usage: tests/e2e/test_files.py PROGRAM [NAME...]      (only tests whose name contains a NAME)
"""
import contextlib
import json
import os
import pathlib
import resource
import shutil
import signal
import stat
import subprocess
import tempfile

import program
from program import (LIMIT, MODEL, PROGRAM, Skip, carat, environment, expect, expect_error,
                     expect_status, long_model, need_json, wait_until)

OLD = b"precious"
NOBODY = 65534
MUTE = sum((["-l", f"{i}=-inf"] for i in range(768)), [])  # sampling fails at the first token


def text_file(folder, n=40):
    path = os.path.join(folder, "text")
    pathlib.Path(path).write_text("The quick brown fox jumps over the lazy dog. " * n)
    return path


# Each command that writes a file: its arguments, and its standard input.
def run_call(folder, path, model=MODEL):
    return ["run", model, "hi", "-n", "6", "--seed", "1", "-q", "-o", path], b""


def run_json_call(folder, path, model=MODEL):
    return ["run", model, "hi", "-n", "6", "-q", "--json", "-o", path], b""


def logits_call(folder, path, model=MODEL):
    return ["logits", model, "--tokens", "2,5,7,9", "--all", "-q", "-o", path], b""


def base_call(folder, path, model=MODEL):
    return ["perplexity", model, "-f", text_file(folder), "-c", "32", "--chunks", "2", "-q",
            "--save-logits", path], b""


def chat_call(folder, path, model=MODEL):
    return ["chat", model, "-n", "3", "-q"], b"hello\n/save " + path.encode() + b"\n"


CALLS = {"run": run_call, "run --json": run_json_call, "logits": logits_call,
         "perplexity": base_call, "chat": chat_call}


@contextlib.contextmanager
def folder_with(content=OLD):
    """A folder, and the path of a file in it: with this content, or not there (None)."""
    with tempfile.TemporaryDirectory() as folder:
        home = os.path.join(folder, "home")
        os.mkdir(home)
        path = os.path.join(home, "result")
        if content is not None:
            pathlib.Path(path).write_bytes(content)
        yield folder, path


def call(make, folder, path, *more, **options):
    arguments, stdin = make(folder, path)
    return carat(*arguments, *more, stdin=stdin, **options)


def content(path):
    return pathlib.Path(path).read_bytes()


def expect_kept(path, name, old=OLD):
    """The file has its old content, and no other file is next to it."""
    expect(content(path) == old, f"{name}: {content(path)[:60]!r}")
    expect(os.listdir(os.path.dirname(path)) == ["result"], f"{name}: next to it: "
           f"{os.listdir(os.path.dirname(path))}")


def expect_refused(done, name, status, *words):
    """What the program says. A chat says it, goes on, and ends with the status of it."""
    expect(done.returncode == status, f"{name}: status {done.returncode}: {done.stderr!r}")
    text = done.stderr.decode(errors="replace")
    expect("carat: error: " in text, f"{name}: {text!r}")
    for word in words:
        expect(word in text, f"{name}: {word!r} is not in {text!r}")


# ---- What is written --------------------------------------------------------------------------

def test_a_result_takes_the_place_of_the_old_file_and_keeps_its_mode():
    for name, make in CALLS.items():
        for mode in (0o600, 0o640, 0o755, None):
            with folder_with(OLD * 100000 if mode else None) as (folder, path):
                if mode:
                    os.chmod(path, mode)
                expect_status(call(make, folder, path), 0)
                found = stat.S_IMODE(os.stat(path).st_mode)
                expect(content(path) and OLD not in content(path), f"{name}: {mode}")
                expect(found == mode or not mode, f"{name}: mode {found:o}, {mode} expected")
                expect(os.listdir(os.path.dirname(path)) == ["result"], name)


def test_a_new_file_obeys_the_umask():
    with folder_with(None) as (folder, path):
        done = call(run_call, folder, path, preexec_fn=lambda: os.umask(0o027))
        expect_status(done, 0)
        expect(stat.S_IMODE(os.stat(path).st_mode) == 0o640, oct(os.stat(path).st_mode))


def test_a_link_is_followed_and_stays():
    for name, make in CALLS.items():
        with folder_with() as (folder, path):
            links = {"absolute": path, "relative": "home/result", "link": "relative",
                     "new": "home/new"}
            for link, to in links.items():
                link = os.path.join(folder, link)
                os.symlink(to, link)
                pathlib.Path(path).write_bytes(OLD)
                expect_status(call(make, folder, link), 0)
                expect(os.path.islink(link), f"{name}: {to}: no link any more")
                target = os.path.realpath(link)
                expect(target.startswith(folder + "/home/"), target)
                expect(content(target) and content(target) != OLD, f"{name}: {to}")
            expect(sorted(os.listdir(folder + "/home")) == ["new", "result"], name)


def test_links_in_a_circle_are_an_error():
    with folder_with() as (folder, path):
        os.symlink("b", folder + "/a")
        os.symlink("a", folder + "/b")
        expect_error(call(run_call, folder, folder + "/a"), 1, folder + "/a", "cannot be written")


def test_devices_pipes_and_descriptors_are_written_directly():
    plain = carat(*run_call("", "-")[0]).stdout
    expect(len(plain) > 1, "-o - is standard output")
    with folder_with(None) as (folder, path):
        for name, make in CALLS.items():
            before = os.stat("/dev/null")
            expect_status(call(make, folder, "/dev/null"), 0)
            expect(os.path.samestat(before, os.stat("/dev/null")), "/dev/null is a device still")
        for out in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
            done = call(run_call, folder, out)
            expect(done.stdout == plain, f"{out}: {done.stdout!r}")
        os.mkfifo(path)
        reader = subprocess.Popen(["cat", path], stdout=subprocess.PIPE)
        expect_status(call(run_call, folder, path), 0)
        expect(reader.communicate(timeout=LIMIT)[0] == plain, "a pipe")
        expect(stat.S_ISFIFO(os.stat(path).st_mode), "the pipe is a pipe still")
        with open(folder + "/log", "wb") as log:  # opened by somebody else, written from there on
            log.write(b"first\n")
            log.flush()
            done = call(run_call, folder, f"/dev/fd/{log.fileno()}", pass_fds=[log.fileno()])
            expect_status(done, 0)
        expect(content(folder + "/log") == b"first\n" + plain, str(content(folder + "/log")))
    expect_error(carat(*run_call("", "/dev/full")[0]), 1, "/dev/full")


def test_standard_output_takes_numbers_and_the_report_goes_beside():
    with folder_with(None) as (folder, path):
        report = json.loads(call(logits_call, folder, path).stdout)
        done = carat("logits", MODEL, "--tokens", "2,5,7,9", "--all", "-o", "-")
        expect_status(done, 0)
        expect(done.stdout == content(path) and report["rows"] == 4, "rows")
        expect(b'"rows":4' in done.stderr, str(done.stderr))
        table = call(base_call, folder, path).stdout
        done = call(base_call, folder, "-")
        expect(done.stdout == content(path), "a base")
        expect(done.stderr == table and b"perplexity" in table, str(done.stderr))
        terminal = program.Terminal("logits", MODEL, "--tokens", "2", "-o", "-")
        expect(terminal.status() == 2 and "terminal" in terminal.seen, terminal.seen)


# ---- What is not written over -----------------------------------------------------------------

def links_to(path):
    """Three names of a file: its own, a link, and a second one."""
    folder = os.path.dirname(path)
    os.symlink(os.path.basename(path), folder + "/symlink")
    os.link(path, folder + "/hardlink")
    return path, folder + "/symlink", folder + "/hardlink"


def test_the_model_is_not_written_over():
    for name, make in CALLS.items():
        with tempfile.TemporaryDirectory() as folder:
            model = shutil.copy(MODEL, folder + "/m.gguf")
            before = content(model)
            for path in links_to(model):
                arguments, stdin = make(folder, path, model)
                done = carat(*arguments, stdin=stdin)
                expect_refused(done, name, 2, path, "is the model")
                expect(content(model) == before, f"{name}: {path}")


def test_no_part_of_a_split_model_is_written_over():
    for name, make in CALLS.items():
        if name == "chat":
            continue  # has to be loaded
        with tempfile.TemporaryDirectory() as folder:
            parts = [f"{folder}/m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
            for part in parts:
                pathlib.Path(part).write_bytes(OLD)
            for path in parts:
                done = carat(*make(folder, path, parts[0])[0])
                expect_refused(done, name, 2, path, "the model")
            for path in links_to(parts[2]):
                expect_refused(carat(*make(folder, path, parts[1])[0]), name, 2, path, "a part of")
            expect([content(p) for p in parts] == [OLD] * 3, name)


def test_what_options_read_is_not_written_over():
    with tempfile.TemporaryDirectory() as folder:
        text, base, ids = text_file(folder), folder + "/base", folder + "/ids"
        expect_status(carat("perplexity", MODEL, "-f", text, "-c", "32", "--chunks", "2",
                            "--save-logits", base), 0)
        pathlib.Path(ids).write_text("2 5 7")
        calls = [(base, ["perplexity", MODEL, "--kl", base, "--save-logits"]),
                 (text, ["perplexity", MODEL, "-f", text, "-c", "32", "--save-logits"]),
                 (text, ["run", MODEL, "-f", text, "-n", "2", "-o"]),
                 (ids, ["logits", MODEL, "--tokens-file", ids, "-o"])]
        with contextlib.suppress(Skip):
            need_json()
            tools = folder + "/tools"
            pathlib.Path(tools).write_text("[]")
            calls.append((tools, ["run", MODEL, "hi", "--tools", tools, "-n", "2", "-o"]))
        for read, arguments in calls:
            before = content(read)
            for path in links_to(read):
                expect_error(carat(*arguments, path), 2, path, "reads")
                expect(content(read) == before, str(arguments))
            os.unlink(folder + "/symlink")
            os.unlink(folder + "/hardlink")
        with open(text, "rb") as source:
            done = subprocess.run([PROGRAM, "run", MODEL, "-n", "2", "-o", text], stdin=source,
                                  capture_output=True, env=environment(), timeout=LIMIT)
        expect_error(done, 2, text, "standard input")


# ---- Failures ---------------------------------------------------------------------------------

def test_an_answer_that_fails_keeps_the_old_file():
    with folder_with() as (folder, path):
        done = call(run_call, folder, path, *MUTE)
        expect_error(done, 1)
        expect_kept(path, "run")


def test_a_file_that_may_not_grow_keeps_the_old_one():
    def limit(n_bytes):
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))
    for name, make in CALLS.items():
        with folder_with() as (folder, path):
            text_file(folder)
            done = call(make, folder, path, preexec_fn=limit(0 if name != "perplexity" else 2000))
            expect_refused(done, name, 1, path, "File too large")
            expect_kept(path, name)


def test_impossible_targets_are_told_by_name():
    for name, make in CALLS.items():
        with folder_with() as (folder, path):
            home = os.path.dirname(path)
            for target, word in ((home, "folder"), (home + "/no/file", "No such file"),
                                 (path + "/file", "Not a directory"),
                                 (home + "/" + "x" * 256, "too long"),
                                 (home + "/" + "y/" * 3000, "too long")):
                done = call(make, folder, target)
                expect_refused(done, name, 1, target[:300], word)
            expect_kept(path, name)
        longest = "z" * 255
        with folder_with() as (folder, path):
            expect_status(call(make, folder, os.path.join(folder, longest)), 0)
            expect(longest in os.listdir(folder), f"{name}: 255 bytes are a name")


@contextlib.contextmanager
def as_somebody():
    """Arguments for a run as a user who is not root, with a copy of the program and the model."""
    if os.geteuid() != 0:
        yield {}, PROGRAM, MODEL
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        mine = [shutil.copy(PROGRAM, folder + "/carat"), shutil.copy(MODEL, folder + "/m.gguf")]

        def become():
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        yield {"preexec_fn": become}, *mine


def test_what_may_not_be_written_is_left_alone():
    with as_somebody() as (options, own_program, own_model), folder_with() as (folder, path):
        os.chmod(folder, 0o755)
        home = os.path.dirname(path)
        for name, make in CALLS.items():
            text_file(folder)
            for folder_mode, file_mode, target in ((0o555, 0o666, path), (0o777, 0o444, path),
                                                   (0o555, 0o666, home + "/new")):
                os.chmod(path, file_mode)
                os.chmod(home, folder_mode)
                arguments, stdin = make(folder, target, own_model)
                done = subprocess.run([own_program, *arguments], input=stdin, timeout=LIMIT,
                                      capture_output=True, env=environment(), **options)
                expect_refused(done, name, 1, target, "Permission denied")
                expect_kept(path, f"{name}: {folder_mode:o} {file_mode:o}")
        os.chmod(home, 0o755)


# ---- Signals ----------------------------------------------------------------------------------

LONG = {
    "run": lambda folder, path: ["run", long_model(), "hi", "--ignore-eos", "-c", "200000", "-q",
                                 "-o", path],
    "run --json": lambda folder, path: ["run", long_model(), "hi", "--ignore-eos", "-c", "200000",
                                        "--json", "-q", "-o", path],
    "logits": lambda folder, path: ["logits", long_model(), "--tokens", ",".join(["5"] * 60000),
                                    "--all", "-q", "-o", path],
    "perplexity": lambda folder, path: ["perplexity", MODEL, "-f", text_file(folder, 4000), "-c",
                                        "256", "--backend", "ref", "-q", "--save-logits", path],
}


def beside(path):
    folder = os.path.dirname(path)
    return [os.path.join(folder, n) for n in os.listdir(folder) if n != os.path.basename(path)]


def start(name, folder, path, least):
    """The program, once it has written `least` bytes next to the file."""
    child = subprocess.Popen([PROGRAM, *LONG[name](folder, path)], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())

    def is_there():
        expect(child.poll() is None, f"{name} ended early: {child.poll()}")
        names = beside(path)
        return bool(names) and os.path.getsize(names[0]) >= least
    wait_until(is_there, f"{name}: {least} bytes")
    return child


def end(child, *signals):
    for number in signals:
        child.send_signal(number)
    child.communicate(timeout=LIMIT)
    return child.returncode


SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: (-1, 129),
           signal.SIGQUIT: -signal.SIGQUIT}


def expect_end(found, number, name):
    wanted = SIGNALS[number]
    is_right = found in wanted if isinstance(wanted, tuple) else found == wanted
    expect(is_right, f"{name}: {number.name}: status {found}, {wanted} expected")


def test_a_signal_keeps_the_text_that_was_written():
    for number in SIGNALS:
        with folder_with() as (folder, path):
            child = start("run", folder, path, 20)
            expect(content(path) == OLD, "the old file stands until the end")
            expect_end(end(child, number), number, "run")
            expect(len(content(path)) >= 20 and OLD not in content(path), str(content(path)[:80]))
            expect(beside(path) == [], f"{number.name}: {beside(path)}")


def test_a_signal_leaves_the_old_file_where_half_a_result_is_none():
    for name, least in (("run --json", 0), ("logits", 0), ("logits", 500000), ("perplexity", 0),
                        ("perplexity", 500000)):
        for number in SIGNALS:
            if name == "run --json" and number == signal.SIGINT:
                continue  # the answer ends, and the JSON is whole
            with folder_with() as (folder, path):
                child = start(name, folder, path, least)
                expect_end(end(child, number), number, name)
                expect_kept(path, f"{name}: {number.name}")


def test_an_interrupted_answer_in_json_is_whole():
    with folder_with() as (folder, path):
        child = start("run --json", folder, path, 0)
        end(child, signal.SIGINT)
        expect(child.returncode == 130, f"status {child.returncode}")
        if content(path) != OLD:  # it may have come before the answer began
            report = json.loads(content(path))
            expect(report["finish"] == "cancelled", str(report["finish"]))
        expect(beside(path) == [], str(beside(path)))


def test_a_kill_leaves_a_name_that_can_be_recognised():
    for name in LONG:
        with folder_with() as (folder, path):
            child = start(name, folder, path, 0)
            end(child, signal.SIGKILL)
            expect(content(path) == OLD, name)
            names = [os.path.basename(n) for n in beside(path)]
            expect(all(n.startswith("result.carat-") for n in names) and len(names) < 2, str(names))


if __name__ == "__main__":
    program.main(globals())
