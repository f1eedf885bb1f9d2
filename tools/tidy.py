#!/usr/bin/env python3
"""Checks what a compiler does not: layers, circles, banned calls, sizes, documents, words.

Run it from anywhere in the project; ctest runs it as `tidy`. It reads every file that git tracks or
would track. Ends with "N files, M problems" and fails when M is not 0.
"""
import ast
import functools
import os
import pathlib
import re
import subprocess
import sys

import gen_ops_md

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Who may include whom. A folder may always include itself. The most exact entry wins.
LAYERS = {
    "src/base": ["carat_status.h"],
    "src/quant": ["base/"],
    "src/gguf": ["quant/format.h", "base/"],
    "src/text": ["carat.h", "gguf/", "base/"],
    "src/answer": ["carat.h", "text/", "base/"],
    "src/json": ["carat.h", "base/"],
    "src/cache": ["plan/kv.h", "base/"],
    "src/grammar": ["carat.h", "json/", "text/vocab.h", "base/"],
    "src/plan": ["quant/format.h", "base/"],
    "src/model": ["plan/", "gguf/", "quant/", "base/"],
    "src/backend": ["plan/", "quant/", "base/"],
    "src/backend/*": ["backend/backend.h", "backend/host.h", "backend/time_table.h", "plan/",
                      "quant/", "base/"],
    "src/engine": ["carat.h", "carat_inspect.h", "carat_quantize.h", "model/", "cache/", "plan/",
                   "backend/backend.h", "text/", "answer/", "grammar/", "json/", "gguf/", "quant/",
                   "base/"],
    "src/api": ["carat.h", "carat_status.h", "json/", "base/"],
    "src/server": ["carat.h", "carat_inspect.h", "carat_status.h", "api/", "json/", "base/"],
    "src/hub": ["carat_status.h", "json/", "base/"],
    "src/cli": ["carat.h", "carat_inspect.h", "carat_quantize.h", "carat_status.h", "server/",
                "hub/", "json/", "base/"],
    "include": ["carat.h", "carat_status.h"],
}

# (pattern, where it is allowed below src/, why)
BANNED = [
    (r"(?:secure_)?getenv|setenv|putenv", r"src/(cli|server)/", "the environment is the program's"),
    (r"_?exit|quick_exit", r"src/(cli|server)/", "only the program ends the process"),
    (r"abort", r"src/base/assert\.c", "use carat_assert"),
    (r"malloc|calloc|realloc|free|strdup|strndup|v?asprintf|aligned_alloc|posix_memalign",
     r"src/base/mem\.c", "use base/mem.h or an arena"),
    (r"v?printf|puts|putchar", r"src/(cli|server)/", "only the program prints"),
    (r"(?:v?fprintf|fputs|fputc|fwrite|perror)(?=\s*\([^;]*\bstderr\b)|perror",
     r"src/((cli|server)/|base/assert\.c)", "only the program prints"),
    (r"sprintf|vsprintf|strcpy|strcat|strncpy|strncat|gets|atoi|atol|atof|strtok|tmpnam|alloca",
     None, "has a safe counterpart"),
    (r"system|popen", None, "nothing runs other programs"),
]

LINE_MAX = 100
FUNCTION_MAX = 70
STRUCT_MAX = 200  # of one with methods
FILE_MAX = 1000
PAGE_MAX = 1200  # the page is one file of each kind
FORMAT_VERSION = 14  # of clang-format, as in Debian 12

# Functions and structs that are too long for now: name -> lines. May only shrink.
LONG_PARTS = {}

# Each pattern is written so that it does not match itself.
WORDS = [
    (r"/wor[k]/|/far[m]/|[.]librar[y]\b", "names a machine's folder"),
    (r"\bTOD[O]\b|\bFIXM[E]\b|\bXX[X]\b|not implemente[d]", "unfinished"),
    (r"pypi[.]or[g]|registry[.]npm|crates[.]i[o]|proxy[.]golan[g]|deb[.]debian[.]or[g]",
     "names a package registry"),
    (r"(?i)\bclaud[e]\b|\bchatgp[t]\b|\bcopilo[t]\b|\bAI assistan[t]", "names a tool"),
    (r"(?m)^(?:<{7}|>{7}|={7})(?: |$)", "conflict mark"),
]

# Files that tell which programs work with the server, or ask it as those do.
NAME_CLIENTS = ("README.md", "docs/server.md", "tests/clients/")

# Sentences that say it in an unusual way, where people read: comments and pages.
PROSE = [
    (r"(?i)\bmad[e] ready\b", "write \"prepared\""),
    (r"(?i)\bof those tha[t]\b", "name what is meant"),
]

# Functions below src/ that only tests call, grouped by purpose.
FOR_TESTS = {
    "tests decide without a connection":
        ["guard_decide"],
    "tests see what memory and cores are taken, and make it fail":
        ["mem_fail_after", "mem_blocks_live", "cores_waiting"],
    "tests choose what the program lets the machine choose":
        ["cpu_kernels_named", "cublas_version", "gguf_open_memory", "launch_gemm_tile",
         "gemm_tile_for", "gemm_tile_name"],
    "tests ask for facts that the program only uses":
        ["layout_shape_caches", "op_meaning"],
    "tests free what is cached":
        ["prefix_make_room", "prefix_flush"],
    "tests look at the order that the program sorts by":
        ["schedule_is_before"],
    "tests ask grammars where an answer may end":
        ["grammar_state_is_complete"],
    "tests see that everything adds up":
        ["prefix_check"],
    "tests, their support and bench draw and name what the program reads":
        ["f32_to_bf16"],
}

CODE = {".c", ".h", ".cu", ".cuh", ".py", ".sh", ".cmake"}
C_FILES = {".c", ".h", ".cu", ".cuh"}
BINARY = {".gguf", ".f32", ".bin", ".png", ".gz"}
WEB = {".html", ".css", ".js"}  # the page: longer files, nothing that makes markup of text
DATA = {".csv", ".json"}  # written by machines: only their words are checked
MARKUP = re.compile(r"(?:inner|outer)HTML|insertAdjacentHTML|document\.write|\beval\b|new Function|"
                    r"createContextualFragment|DOMParser|setHTML|srcdoc|<style|\sstyle=|\son\w+=")
TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|/\*.*?\*/|//[^\n]*', re.DOTALL)
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)

problems = []


def problem(path, line, text):
    problems.append(f"{path}:{line}: {text}" if line else f"{path}: {text}")


def list_files():
    """Tracked and new files; without git, everything outside build folders."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        out = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
        names = [os.fsdecode(n) for n in out.split(b"\0") if n]
    except (OSError, subprocess.CalledProcessError):
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*")
                 if not {".git", "build", "__pycache__"} & set(p.relative_to(ROOT).parts)]
    return sorted(n for n in set(names) if (ROOT / n).is_file())


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def without_comments(text):
    """Comments and strings blanked, line numbers kept."""
    def blank(match):
        token = match.group()
        inside = "\n" * token.count("\n")
        return '""' if token[0] in "\"'" else " " + inside
    return TOKEN.sub(blank, text)


def layer_of(folder):
    """The folder that counts as one layer, and what it may include; None where anything goes."""
    if folder.startswith("src/backend/"):  # one layer a backend, however deep
        return "/".join(folder.split("/")[:3]), LAYERS["src/backend/*"]
    return folder, LAYERS.get(folder)


def check_layers(path, text):
    folder, allowed = layer_of(str(pathlib.PurePosixPath(path).parent))
    if allowed is None:
        return
    own = folder.removeprefix("src/") + "/"
    for match in INCLUDE.finditer(text):
        name = match.group(1)
        is_own = name.startswith(own) or (folder == "include" and "/" not in name)
        if is_own or any(name == a or (a.endswith("/") and name.startswith(a)) for a in allowed):
            continue
        problem(path, line_of(text, match.start()), f"{folder} must not include {name}")
    header = path[:-2] + ".h"
    if path.endswith(".c") and (ROOT / header).exists():
        first = re.search(r'^\s*#\s*include\s+["<]([^">]+)', text, re.MULTILINE)
        if not first or not header.endswith(first.group(1)):
            problem(path, 1, "its own header must be included first")


def check_calls(path, code):
    if not path.startswith("src/"):
        return
    for pattern, where, why in BANNED:
        if where and re.match(where, path):
            continue
        for match in re.finditer(rf"(?<![\w.>])(?:{pattern})\s*\(", code):
            name = match.group().rstrip("( \t\n")
            problem(path, line_of(code, match.start()), f"{name} is not for here: {why}")


def check_length(path, name, line, length, most):
    limit = LONG_PARTS.get(f"{path}:{name}", most)
    if length > limit:
        problem(path, line, f"{name} has {length} lines, at most {limit}")
    elif limit > most >= length:
        problem(path, line, f"{name} is short now: take it off LONG_PARTS")


def check_function(path, name, line, length):
    check_length(path, name, line, length, FUNCTION_MAX)


def without_preprocessor(code):
    """Directives blanked, with the lines that continue them; line numbers kept."""
    return re.sub(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
                  lambda match: "\n" * match.group().count("\n"), code)


def head_of(text):
    """What comes before a brace: ("function", name), ("struct", name), ("outer", "") or None."""
    text = re.sub(r"\b(?:__launch_bounds__|__attribute__|__align__|alignas)\s*"
                  r"\((?:[^()]|\([^()]*\))*\)|^\s*extern\s*\"\"", " ", text)
    if not text.strip() or re.match(r"\s*namespace\b", text):
        return "outer", ""
    bare = re.sub(r"\btemplate\s*<[^{]*?>(?=\s*[a-zA-Z_])", " ", text)
    struct = re.match(r"\s*(?:(?:static|const)\s+)*(?:struct|class|union)\s+(\w+)[^()=]*$", bare)
    if struct:
        return "struct", struct.group(1)
    bare = re.sub(r"(\))\s*:(?!:).*", r"\1", bare, flags=re.DOTALL)  # what a constructor sets
    function = re.search(r"(\w+)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)[\s\w]*$", bare)
    return ("function", function.group(1)) if function else None


@functools.cache
def c_parts(code):
    """Functions, methods among them, and structs: (kind, name, first line, lines, has methods).
    What is inside a function, such as a lambda, is part of it."""
    code = without_preprocessor(code)
    found, open_parts, begin = [], [], 0
    for match in re.finditer(r"[{};]", code):
        at, mark = match.start(), match.group()
        if mark == "{":
            is_inside = any(p is None or p[0] == "function" for p in open_parts)
            head = re.split(r"\n\s*\n", code[begin:at].rstrip())[-1].lstrip()
            kind_name = None if is_inside else head_of(head)
            line = line_of(code, at) - code[code.rfind(head, begin, at):at].count("\n")
            open_parts.append(kind_name and [*kind_name, line, False])
        elif mark == "}" and open_parts:
            part = open_parts.pop()
            if part and part[0] != "outer":
                kind, name, line, has_methods = part
                found.append((kind, name, line, line_of(code, at) - line + 1, has_methods))
                owner = open_parts[-1] if open_parts else None
                if kind == "function" and owner and owner[0] == "struct":
                    owner[3] = True
        begin = at + 1
    return found


def check_c_parts(path, code):
    for kind, name, line, length, has_methods in c_parts(code):
        if kind == "function":
            check_function(path, name, line, length)
        elif has_methods:
            check_length(path, "struct " + name, line, length, STRUCT_MAX)


def check_python(path, text):
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        problem(path, error.lineno, "is no valid Python")
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            check_function(path, node.name, node.lineno, node.end_lineno - node.lineno + 1)


def check_document(path, text):
    titles, is_fenced = 0, False
    for line in text.split("\n"):
        if line.startswith("```"):
            is_fenced = not is_fenced
        titles += not is_fenced and line.startswith("# ")
    if titles != 1:
        problem(path, 1, f"{titles} titles, one expected")
    if is_fenced:
        problem(path, 1, "a code block is not closed")
    for match in re.finditer(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        if not (ROOT / path).parent.joinpath(match.group(1)).exists():
            problem(path, line_of(text, match.start()), f"{match.group(1)} does not exist")


def check_text(path, text, is_code, lines_max=FILE_MAX):
    lines = text.split("\n")
    for i, line in enumerate(lines, 1):
        if line != line.rstrip(" \t\r"):
            problem(path, i, "blanks at the end of the line")
        if is_code and "\t" in line:
            problem(path, i, "a tab; use blanks")
        if is_code and len(line) > LINE_MAX:
            problem(path, i, f"{len(line)} columns, at most {LINE_MAX}")
    if text and not text.endswith("\n"):
        problem(path, len(lines), "the last line does not end")
    if is_code and len(lines) - 1 > lines_max:
        problem(path, 1, f"{len(lines) - 1} lines, at most {lines_max}")


def check_words(path, text):
    for pattern, why in WORDS:
        if why == "names a tool" and path.startswith(NAME_CLIENTS):
            continue
        for match in re.finditer(pattern, text):
            problem(path, line_of(text, match.start()), f"\"{match.group().strip()}\": {why}")


def check_file(path):
    suffix = pathlib.PurePosixPath(path).suffix
    if suffix in BINARY or path.startswith(("tests/golden/fixtures/", "tests/fuzz/corpus/")):
        return
    data = (ROOT / path).read_bytes()
    if b"\0" in data[:8192]:
        return
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        problem(path, 0, "is not UTF-8")
        return
    is_script = not suffix and text.startswith("#!")
    check_words(path, text)
    if path == "LICENSE" or suffix in DATA:
        return
    is_code = suffix in CODE | WEB or is_script or path.endswith("CMakeLists.txt")
    check_text(path, text, is_code, PAGE_MAX if suffix in WEB else FILE_MAX)
    if suffix in WEB:
        for match in MARKUP.finditer(text):
            problem(path, line_of(text, match.start()), f"{match.group()} is not for the page")
    if suffix in C_FILES:
        code = without_comments(text)
        check_layers(path, text)
        check_calls(path, code)
        check_c_parts(path, code)
        check_prose(path, text)
    elif suffix == ".py":
        check_python(path, text)
    elif suffix == ".md":
        check_document(path, text)
        check_prose(path, text)


def check_prose(path, text):
    for pattern, why in PROSE:
        for match in re.finditer(pattern, text):
            problem(path, line_of(text, match.start()), f"\"{match.group()}\": {why}")


def source_code(files):
    """All C and CUDA below src/, without comments."""
    return {path: without_comments((ROOT / path).read_text(encoding="utf-8")) for path in files
            if path.startswith("src/") and pathlib.PurePosixPath(path).suffix in C_FILES}


def heads_in(path, text):
    """Functions that a header declares: a declaration begins at the margin, other uses do not."""
    return set(re.findall(r"(?m)^(?!static|template)[a-z][^;{}()=]*?\b(\w+)\(", text)
               if path.endswith("h") else ())


def arrows_of(code):
    """For each layer, what its files need from each other: {file: {other file: a name in it}}. They
    need it by an include, or by a call of a function that a header offers."""
    layers = {}
    for path in code:
        layers.setdefault(layer_of(str(pathlib.PurePosixPath(path).parent))[0], []).append(path)
    for paths in layers.values():
        heads = {path: heads_in(path, code[path]) for path in paths}
        offered = set().union(*heads.values())
        bodies = {path: {name for kind, name, *_ in c_parts(code[path]) if kind == "function"}
                  for path in paths}
        owner = {name: path for path in paths if not path.endswith("h")
                 for name in bodies[path] & offered}
        arrows = {path: {} for path in paths}
        for path in paths:
            includes = INCLUDE.findall((ROOT / path).read_text(encoding="utf-8"))
            called = set(re.findall(r"(?<![\w.>])(\w+)\s*\(", without_preprocessor(code[path])))
            called &= owner.keys() - bodies[path] - heads[path]
            needed = {"src/" + name: name for name in includes} | {owner[n]: n for n in called}
            arrows[path] = {other: name for other, name in needed.items() if other in heads}
        yield arrows


def circle_in(arrows):
    """Files that need each other in a circle, the first again at the end; [] without one."""
    done = set()

    def walk(one, way):
        if one in way:
            return way[way.index(one):] + [one]
        if one in done:
            return []
        circle = next(filter(None, (walk(other, way + [one]) for other in sorted(arrows[one]))), [])
        done.add(one)
        return circle
    return next(filter(None, (walk(one, []) for one in sorted(arrows))), [])


def check_circles(code):
    """No two files of a layer need each other, directly or through others."""
    for arrows in arrows_of(code):
        circle = circle_in(arrows)
        if circle:
            ties = [f"{a} needs {arrows[a][b]} of {b}" for a, b in zip(circle, circle[1:])]
            problem(circle[0], 0, "files in a circle: " + ", ".join(ties))


def check_callers(code):
    """A function below src/ that a header offers has a caller in another file. include/ is the
    library's. Functions that lists make (commands, operations, formats) are in no header."""
    declared, used = {}, {}
    for path, text in code.items():
        heads = heads_in(path, text)
        for name in set(re.findall(r"[A-Za-z_]\w+", text)):
            (declared if name in heads else used).setdefault(name, set()).add(path)
    public = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "include").glob("*.h"))
    for_tests = {name for names in FOR_TESTS.values() for name in names}
    for path, text in code.items():
        if path.endswith("h"):
            continue
        for kind, name, line, _, _ in c_parts(text):
            if kind != "function" or name not in declared or re.search(rf"\b{name}\(", public):
                continue
            has_caller = bool(used[name] - {path})
            if not has_caller and name not in for_tests:
                problem(path, line, f"{name} has no caller in another file below src/")
            elif has_caller and name in for_tests:
                problem(path, line, f"{name} has a caller: take it off FOR_TESTS")


def check_generated():
    current = gen_ops_md.render(gen_ops_md.SOURCE.read_text(encoding="utf-8"))
    target = gen_ops_md.TARGET
    if not target.exists() or target.read_text(encoding="utf-8") != current:
        problem("docs/ops.md", 0, "is old: run tools/gen_ops_md.py")


def formatter():
    """clang-format of the version that .clang-format is written for, or None: others differ."""
    for name in (f"clang-format-{FORMAT_VERSION}", "clang-format"):
        try:
            says = subprocess.run([name, "--version"], capture_output=True, text=True).stdout
        except OSError:
            continue
        if f"version {FORMAT_VERSION}." in says:
            return name
    return None


def check_format(files):
    """Whether the C files obey .clang-format. Returns what was not checked, and why, or ""."""
    name = formatter()
    if not name:
        return f", formatting skipped: clang-format {FORMAT_VERSION} is not installed"
    sources = [f for f in files if pathlib.PurePosixPath(f).suffix in C_FILES]
    says = subprocess.run([name, "--dry-run", "-Werror", "--ferror-limit=1", *sources], cwd=ROOT,
                          capture_output=True, text=True).stderr
    for match in re.finditer(r"(?m)^(.+?):(\d+):\d+: error: ", says):
        problem(match.group(1), int(match.group(2)), "run clang-format -i on it")
    return ""


def main():
    files = list_files()
    for path in files:
        check_file(path)
    code = source_code(files)
    check_callers(code)
    check_circles(code)
    check_generated()
    skipped = check_format(files)
    print("\n".join(problems), end="\n" if problems else "")
    print(f"{len(files)} files, {len(problems)} problems{skipped}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
