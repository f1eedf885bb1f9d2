#!/usr/bin/env python3
"""The installed library: what other programs compile, link and load.

usage: tests/e2e/test_library.py PROGRAM [WORD ...]

PROGRAM is the program of a build folder. The test installs that build to a folder of its own and
then moves it: nothing in it may depend on where it was built or installed.
"""
import json
import math
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

import program
from program import ROOT, Skip, carat, environment, expect, need_demo, need_json

BUILD = pathlib.Path(program.PROGRAM).parent
PROMPT = "Tell me a story about a small dog."
REQUEST = json.dumps({"messages": [{"role": "user", "content": PROMPT}]})
SANITIZER = "-fsanitize=address,undefined"

_folder = tempfile.TemporaryDirectory()
_prefix = None


def work(*command, **more):
    """Runs a tool; returns what it prints."""
    env = environment(PKG_CONFIG_PATH=str(library() / "pkgconfig"), **more)
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=env,
                          timeout=program.LIMIT, cwd=_folder.name)
    expect(done.returncode == 0, f"{command[:3]}: {done.stderr[-600:]}")
    return done.stdout


def cache(name):
    text = (BUILD / "CMakeCache.txt").read_text()
    found = re.search(rf"^{name}:\w+=(.*)$", text, re.MULTILINE)
    return found.group(1) if found else ""


def is_sanitized():
    return cache("CARAT_SANITIZE") == "ON"


def prefix():
    """The installed folder; installed once."""
    global _prefix
    if _prefix is None:
        if not (BUILD / "CMakeCache.txt").exists():
            raise Skip(f"{BUILD} is no build folder")
        first, second = (pathlib.Path(_folder.name) / name for name in ("first", "second"))
        done = subprocess.run(["cmake", "--install", BUILD, "--prefix", first], text=True,
                              capture_output=True, timeout=program.LIMIT)
        expect(done.returncode == 0, f"cmake --install: {done.stderr[-600:]}")
        first.rename(second)
        _prefix = second
    return _prefix


def library():
    return prefix() / cache("CMAKE_INSTALL_LIBDIR")


def compiler(name):
    if not shutil.which(name):
        raise Skip(f"there is no {name}")
    return [name, "-Wall", "-Wextra", "-Wpedantic", "-Werror",
            *([SANITIZER] if is_sanitized() else [])]


def expected():
    """What the program itself says."""
    need_demo()
    done = carat("run", program.DEMO, PROMPT, "--seed", "0")
    expect(done.returncode == 0 and len(done.stdout) > 20, "carat run")
    return done.stdout.decode()


def check_answer(executable):
    """It prints what the program prints; without jansson, the reason why it cannot."""
    if "jansson" not in program.libraries():
        done = subprocess.run([executable, program.DEMO, REQUEST], capture_output=True, text=True,
                              env=environment(LD_LIBRARY_PATH=str(library())))
        expect(done.returncode == 2 and "built without jansson" in done.stderr, done.stderr)
        return
    said = work(executable, program.DEMO, REQUEST, LD_LIBRARY_PATH=str(library()))
    expect(said == expected(), f"{said!r} instead of {expected()!r}")


def flags(*options):
    return work("pkg-config", *options, "carat").split()


def build(compile_command, name, is_static):
    """Compiles the example with the flags of pkg-config."""
    out = pathlib.Path(_folder.name) / name
    if is_static:
        libraries = [library() / "libcarat.a",
                     *(f for f in flags("--static", "--libs") if f != "-lcarat")]
    else:
        libraries = flags("--libs")
    work(*compile_command, *flags("--cflags"), "-o", out, "-x",
         "c++" if "c++" in compile_command[0] else "c", ROOT / "examples/generate.c", "-x", "none",
         *libraries)
    return out


def test_the_page_about_it_shows_the_example_that_is_compiled():
    shown = (ROOT / "docs/library.md").read_text().split("```c\n")[1].split("```")[0]
    expect(shown == (ROOT / "examples/generate.c").read_text(), "docs/library.md has another one")


def test_the_example_says_why_an_answer_has_failed():
    need_json()
    need_demo()
    example = build([*compiler("cc"), "-std=c11"], "c-failing", is_static=False)
    tensors = json.loads(carat("show", program.DEMO, "--tensors", "--json").stdout)["tensors"]
    weights = next(t for t in tensors if t["name"] == "blk.0.ffn_down.weight")
    expect(weights["type"] == "Q8_0", f"{weights}")
    model = pathlib.Path(_folder.name) / "nan.gguf"
    content = bytearray(program.DEMO.read_bytes())
    struct.pack_into("<e", content, weights["offset"], math.nan)  # the scale of the first block
    model.write_bytes(content)
    done = subprocess.run([example, model, REQUEST], capture_output=True, text=True,
                          env=environment(LD_LIBRARY_PATH=str(library())))
    expect(done.returncode == 1 and "non-finite" in done.stderr, f"{done}")


def test_a_c_program_links_the_shared_library():
    check_answer(build([*compiler("cc"), "-std=c11"], "c-shared", is_static=False))


def test_a_c_program_links_the_static_library_alone():
    out = build([*compiler("cc"), "-std=c11"], "c-static", is_static=True)
    expect("libcarat" not in work("readelf", "-d", out), "is linked with the shared library")
    check_answer(out)


def test_the_header_is_for_cpp_too():
    check_answer(build([*compiler("c++"), "-std=c++11"], "cpp-shared", is_static=False))
    check_answer(build([*compiler("c++"), "-std=c++11"], "cpp-static", is_static=True))


def test_cmake_finds_the_package():
    compiler("cc")
    folder = pathlib.Path(_folder.name) / "user"
    folder.mkdir()
    shutil.copy(ROOT / "examples/generate.c", folder)
    version = re.search(r'define CARAT_VERSION "(\d+\.\d+)', (ROOT / "include/carat.h").read_text())
    (folder / "CMakeLists.txt").write_text(f"""
        cmake_minimum_required(VERSION 3.20)
        project(user LANGUAGES C)
        find_package(carat {version.group(1)} REQUIRED)
        foreach(kind carat static)
            add_executable(use-${{kind}} generate.c)
            target_link_libraries(use-${{kind}} carat::${{kind}})
        endforeach()
        """)
    options = [f"-DCMAKE_C_FLAGS={SANITIZER}"] if is_sanitized() else []
    work("cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix()}", *options)
    work("cmake", "--build", folder / "build")
    for kind in ("carat", "static"):
        check_answer(folder / "build" / f"use-{kind}")


def declared():
    """The functions of the headers."""
    text = "".join(header.read_text() for header in (ROOT / "include").glob("*.h"))
    text = re.sub(r"/\*.*?\*/|^#.*?(?<!\\)$", "", text, flags=re.DOTALL | re.MULTILINE)
    return set(re.findall(r"(?<!\(\*)\b(carat_\w+)\(", text))


def test_the_shared_library_shows_what_the_headers_declare():
    names = {line.split()[-1].split("@")[0]
             for line in work("nm", "-D", "--defined-only", library() / "libcarat.so").splitlines()}
    expect(names == declared(), f"only in one of both: {sorted(names ^ declared())}")
    says = work("readelf", "-d", library() / "libcarat.so")
    expect("[libcarat.so.0]" in says, f"soname: {says}")
    expect("RPATH" not in says and "RUNPATH" not in says, "a run path")


def test_the_static_library_keeps_its_other_names_to_itself():
    lines = work("nm", "-g", "--defined-only", library() / "libcarat.a").splitlines()
    names = {line.split()[-1] for line in lines if len(line.split()) == 3}
    expect(declared() <= names, f"missing: {sorted(declared() - names)}")
    others = sorted(n for n in names if not n.startswith("carat_"))
    expect(not others, f"visible: {others[:10]}")


def test_nothing_installed_names_the_machine_that_built_it():
    wanted = [os.fsencode(str(p)) for p in {ROOT, BUILD.resolve()}]
    files = [p for p in prefix().rglob("*") if p.is_file() and p.suffix != ".gguf"]
    expect(len(files) > 10, f"installed: {files}")
    for path in files:
        data = path.read_bytes()
        if is_sanitized() and data.startswith((b"\x7fELF", b"!<arch>")):
            continue  # gcc's sanitizers name sources in objects, and no option maps these names
        expect(not any(w in data for w in wanted), f"{path} names {ROOT}")
    for name in ("share/man/man1/carat.1", "share/bash-completion/completions/carat",
                 *(f"include/{h.name}" for h in (ROOT / "include").glob("*.h")), "bin/carat"):
        expect((prefix() / name).exists(), f"{name} is missing")


def test_the_installed_program_finds_its_models():
    need_demo()
    done = subprocess.run([prefix() / "bin/carat", "run", "demo", PROMPT, "--seed", "0"],
                          capture_output=True, env=environment(), cwd=_folder.name,
                          stdin=subprocess.DEVNULL, timeout=program.LIMIT)
    expect(done.returncode == 0 and len(done.stdout) > 20, done.stderr.decode())


def python(code, *arguments):
    if is_sanitized():
        raise Skip("a library with AddressSanitizer cannot be loaded into Python")
    need_json()
    need_demo()
    return work(sys.executable, "-c", code, *arguments, PYTHONPATH=str(ROOT / "examples/python"),
                CARAT_LIBRARY=str(library() / "libcarat.so.0"), PYTHONDONTWRITEBYTECODE="1")


def test_python_says_what_the_program_says():
    said = python("import carat_ctypes; carat_ctypes.main()", program.DEMO, PROMPT)
    done = carat("run", program.DEMO, PROMPT, "--temp", "0")
    expect(said == done.stdout.decode(), f"{said!r} instead of {done.stdout!r}")


CANCEL = """
import sys, threading, carat_ctypes
engine = carat_ctypes.Engine(sys.argv[1])
messages = [{"role": "user", "content": sys.argv[2]}]
has_begun, kinds = threading.Event(), []
def cancel():
    has_begun.wait()
    assert engine.cancel()
thread = threading.Thread(target=cancel)
thread.start()
for part in engine.answer(messages):
    kinds.append(part)
    has_begun.set()
    thread.join() # the answer goes on only when it was cancelled
assert engine.finish == carat_ctypes.CANCELLED, engine.finish
assert not engine.cancel()
cut = "".join(text for _, text in kinds)
whole = "".join(text for _, text in engine.answer(messages))
assert cut and len(cut) < len(whole) and whole.startswith(cut), (cut, whole)
engine.close()
"""


def test_python_cancels_from_another_thread():
    python(CANCEL, program.DEMO, PROMPT)


LEAVES = """
import sys, carat_ctypes
engine = carat_ctypes.Engine(sys.argv[1])
messages = [{"role": "user", "content": sys.argv[2]}]
whole = "".join(text for _, text in engine.answer(messages))
for part in engine.answer([{"role": "user", "content": "Name a colour."}]):
    break # leaves the request alone: nobody takes its events
again = "".join(text for _, text in engine.answer(messages))
assert again == whole and engine.finish == 0, (engine.finish, again, whole)
held = engine.answer(messages)
next(held)
engine.close()
held.close()
"""


def test_python_may_leave_an_answer_early():
    python(LEAVES, program.DEMO, PROMPT)


STOPS = """
import sys, carat_ctypes
engine = carat_ctypes.Engine(sys.argv[1])
messages = [{"role": "user", "content": sys.argv[2]}]
whole = "".join(text for _, text in engine.answer(messages, n_top=20))
assert engine.logprobs
for token, logprob, top in engine.logprobs:
    assert len(top) == 20 and top[0] == (token, logprob), (token, logprob, top[0]) # greedy
    assert all(a[1] >= b[1] for a, b in zip(top, top[1:])) and logprob <= 0
words = whole.split()
stop = words[4] + " " + words[5]
cut = "".join(text for _, text in engine.answer(messages, stop=[stop, "never said"]))
assert cut == whole[:whole.index(stop)], (cut, whole)
try:
    list(engine.answer([{"role": "nobody", "content": "x"}]))
except RuntimeError as error:
    assert "role" in str(error), error
else:
    raise AssertionError("an unknown role was taken")
engine.close()
"""


def test_python_has_stop_strings_and_log_probabilities():
    python(STOPS, program.DEMO, PROMPT)


if __name__ == "__main__":
    program.main(globals())
