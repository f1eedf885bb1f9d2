#!/usr/bin/env python3
"""Command lines written for llama.cpp and ollama: what runs, what is noted, what is refused.

usage: tests/e2e/test_pasted.py PROGRAM [NAME...]      (only tests whose name contains a NAME)
"""
import os
import pathlib
import re
import subprocess
import tempfile

from imatrix_file import write_matrix
from program import (DEMO, PROGRAM, Skip, Terminal, carat, environment, expect, expect_error,
                     expect_status, libraries, main)

LINES = pathlib.Path(__file__).with_name("pasted_lines.txt")
LINKS = ("carat", "llama-cli", "llama-completion", "llama-bench", "llama-perplexity",
         "llama-quantize", "llama-imatrix", "llama-tokenize", "llama-server", "llama-mtmd-cli",
         "llama", "ollama")
JSON_GRAMMAR = r"""# objects of texts and numbers
root   ::= object
value  ::= object | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""
IGNORED = "ignored, because it changes nothing here: "


def read_lines():
    """(number, outcome, words, line) of every line of the file."""
    found = []
    for number, text in enumerate(LINES.read_text().splitlines(), 1):
        if not text or text.startswith("#"):
            continue
        head, line = text.split(" :: ", 1)
        outcome, *words = head.split(" ")
        found.append((number, outcome, words, line))
    return found


def make_folder(folder):
    """Links to the program and what the lines name."""
    here = pathlib.Path(folder)
    for name in LINKS:
        (here / name).symlink_to(PROGRAM)
    (here / "demo.gguf").symlink_to(DEMO)
    (here / "prompt.txt").write_text("Tell me a story about a dog.\n")
    (here / "grammars").mkdir()
    (here / "grammars/json.gbnf").write_text(JSON_GRAMMAR)
    (here / "grammars/name.json").write_text(
        '{"type":"object","properties":{"name":{"enum":["Sue"]}}}')
    if "jansson" in libraries():
        write_matrix(here / "imatrix.dat", DEMO)
    (here / "text.txt").write_text("Once upon a time there was a small dog in a house. " * 30)


def run_line(line, folder):
    env = environment(PATH=f"{folder}:{os.environ['PATH']}", CARAT_MAX_TOKENS="8")
    return subprocess.run(["sh", "-c", line], stdin=subprocess.DEVNULL, capture_output=True,
                          cwd=folder, env=env, timeout=120)


def problem_of(outcome, words, done):
    """What is wrong with the outcome of a line; "" when nothing is."""
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    status = {"refused": 2, "missing": 3, "failed": 6}.get(outcome, 0)
    if done.returncode != status:
        return f"status {done.returncode}, {status} expected: {err[-300:]}"
    notes = [text for text in err.splitlines() if IGNORED in text]
    if outcome == "notes":
        wanted = IGNORED + " ".join(words)
        return "" if len(notes) == 1 and notes[0].endswith(wanted) else f"{notes} for {wanted!r}"
    if outcome == "runs":
        return f"{notes}" if notes else "" if out.strip() else "no output"
    text = out if outcome == "prints" else err
    lost = [word for word in words if word not in text]
    if lost:
        return f"{lost} not in {text[-300:]!r}"
    return "no hint" if status and "hint: " not in err else ""


def test_lines_of_other_programs_do_what_is_said():
    if not DEMO.exists():
        raise Skip("models/demo.gguf is not there")
    lines = read_lines()
    expect(len(lines) >= 50, f"{len(lines)} lines")
    has_json = "jansson" in libraries()
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        make_folder(folder)
        for number, outcome, words, line in lines:
            if not has_json and "imatrix.dat" in line:
                continue
            if not has_json and re.search(r" (-j|-jf|--json-schema\S*) ", line):
                outcome, words = "refused", ["built without jansson"]
            problem = problem_of(outcome, words, run_line(line, folder))
            if problem:
                problems.append(f"{LINES.name}:{number}: {line}: {problem}")
    expect(not problems, "\n".join(problems))


# ---- The table -------------------------------------------------------------------------------

def borrowed_rows():
    """Spelling -> (value cell, meaning) of its first row in the options document."""
    text = carat("help", "--markdown").stdout.decode()
    rows = {}
    for line in text.split("## Options of other programs")[1].splitlines():
        match = re.match(r"\| `([^`]*)` \| (.*?) \| (.*) \|$", line)
        for spelling in match.group(1).split() if match else ():
            rows.setdefault(spelling, []).append((match.group(2), match.group(3)))
    return rows


def borrowed_spellings(command, title):
    text = carat("help", command).stdout.decode()
    parts = re.split(r"\n\n(?=accepted |refused )", text)[1:]
    return " ".join(p.split(":", 1)[1] for p in parts if p.startswith(title)).split()


def example_of(command, spelling, cells):
    """A flag with a value that its row accepts. For llama-bench --mmap and such take one."""
    expect(cells, f"{spelling} of {command} has no row that accepts")
    is_flag = not cells[0] and b"a value is missing" not in carat(command, spelling).stderr
    if is_flag:
        return [spelling]
    return [spelling, cells[0].split("`")[1] if "`" in cells[0] else "1"]


def test_every_borrowed_option_is_taken_or_refused_by_name():
    rows, n = borrowed_rows(), 0
    apart = {"-no-cnv", "--no-conversation", "-nocnv"}  # from --interactive
    for command in ("run", "chat", "serve", "perplexity", "imatrix", "tokenize", "bench"):
        taken = []
        for spelling in borrowed_spellings(command, "accepted "):
            cells = [c for c, meaning in rows[spelling] if not meaning.startswith("refused")]
            n += 1
            if spelling in apart:
                expect_error(carat(command, "nosuch", spelling), 3, "nosuch: no such model")
            else:
                taken += example_of(command, spelling, cells)
        expect_error(carat(command, "-q", "--model", "nosuch", *taken), 3, "nosuch: no such model")
        for spelling in borrowed_spellings(command, "refused "):
            value = ["no-such-value"] if rows[spelling][0][0] else []
            expect_error(carat(command, "--model", "nosuch", spelling, *value), 2, spelling, "hint")
            n += 1
    expect(n > 300, f"{n} spellings")


def test_completion_leaves_other_programs_options_out():
    for shell in ("bash", "zsh", "fish"):
        script = carat("completion", shell).stdout.decode()
        expect("--temp" in script or "-l temp" in script, shell)
        expect("mlock" not in script and "rope-scaling" not in script, shell)


def test_help_explains_options_and_finds_the_nearest():
    done = carat("help", "--temp")
    expect_status(done, 0)
    expect(b"run, chat" in done.stdout and b"--temp T" in done.stdout, str(done.stdout))
    expect(b"without effect" in carat("help", "--mlock").stdout, "--mlock")
    expect_error(carat("help", "--tempp"), 2, "--tempp", "did you mean --temp")
    expect_error(carat("ls", "--thread", "2"), 2, "--thread", "--threads")


# ---- Meanings --------------------------------------------------------------------------------

def demo(*arguments, **more):
    if not DEMO.exists():
        raise Skip("models/demo.gguf is not there")
    done = carat(*arguments, **more)
    expect_status(done, 0)
    return done


def test_counts_take_suffixes():
    for flag, text, value in (("-c", "1k", 1024), ("-c", "1024", 1024)):
        done = demo("show", "demo", "--fit", text, "--json")
        expect(f'"n_ctx":{value}'.encode() in done.stdout, f"{flag} {text}")
    expect_error(carat("show", "demo", "--fit", "2m"), 2, "--fit", "2m")
    expect_error(carat("run", "demo", "hi", "--seed", "1k"), 2, "--seed", "1k")
    expect_error(carat("show", "demo", "--fit", "1kk"), 2, "1kk")


def test_no_tokens_and_all_tokens_are_what_they_say():
    done = demo("run", "demo", "hi", "-n", "0", "--json")
    expect(b'"generated_tokens":0' in done.stdout and b'"finish":"length"' in done.stdout,
           str(done.stdout))
    expect(b'"text":""' in done.stdout, str(done.stdout))
    done = demo("run", "demo", "hi", "-n", "-1", "-c", "64", "--ignore-eos", "--json")
    expect(b'"finish":"length"' in done.stdout and b'"generated_tokens":0' not in done.stdout,
           str(done.stdout))


def test_thinking_is_switched_in_every_spelling():
    plain = demo("run", "demo", "hi", "-n", "1", "--json").stdout
    count = re.search(rb'"prompt_tokens":(\d+)', plain).group(1)
    for flags in (["--think=false"], ["--no-thinking"], ["--reasoning-budget", "0"],
                  ["--reasoning", "off"], ["--think", "off"]):
        done = demo("run", "demo", "hi", "-n", "1", "--json", *flags)
        expect(re.search(rb'"prompt_tokens":(\d+)', done.stdout).group(1) == count, str(flags))
    for flags in (["--think"], ["--think=true"], ["--thinking"], ["--reasoning-budget", "-1"],
                  ["--reasoning", "on"], ["--think", "on"]):
        done = demo("run", "demo", "hi", "-n", "1", "--json", *flags)
        expect(re.search(rb'"prompt_tokens":(\d+)', done.stdout).group(1) != count, str(flags))
    done = demo("run", "demo", "hi", "-n", "1", "--json", env=environment(CARAT_THINK="true"))
    expect(re.search(rb'"prompt_tokens":(\d+)', done.stdout).group(1) != count, "CARAT_THINK")


def test_batch_caps_the_chunk():
    for flags, rows in ((["-ub", "8"], 8), (["-b", "4", "-ub", "8"], 4), (["-b", "4"], 4),
                        (["-b", "2k", "-ub", "8"], 8)):
        done = demo("bench", "demo", "-p", "16", "-n", "0", "-r", "1", "-o", "json", *flags)
        expect(f'"n_ubatch":{rows},'.encode() in done.stdout, f"{flags}: {done.stdout[:400]}")


def test_layers_for_a_gpu_are_not_divided_without_one():
    if b'"backend":"cuda"' in carat("devices", "--json").stdout:
        raise Skip("there is a GPU")
    done = demo("run", "demo", "hi", "-n", "1", "-ngl", "4", "-ncmoe", "2", "--json")
    expect(b'"second_device":null' in done.stdout, done.stdout.decode())
    done = demo("run", "demo", "hi", "-n", "1", "-ngl", "4", "--backend", "cpu", "--json")
    expect(b'"gpu_layers":4' in done.stdout, done.stdout.decode())


def test_escapes_count_only_when_asked_for():
    def tokens(*flags):
        done = demo("run", "demo", "-n", "0", "--json", "-p", r"a\nb\tc\\d\"e", *flags)
        return int(re.search(rb'"prompt_tokens":(\d+)', done.stdout).group(1))
    real = demo("run", "demo", "-n", "0", "--json", "-p", 'a\nb\tc\\d"e').stdout
    expect(tokens("-e") == int(re.search(rb'"prompt_tokens":(\d+)', real).group(1)), "-e")
    expect(tokens() != tokens("-e"), "without")


def test_a_system_prompt_comes_from_a_file():
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("You are a pirate.")
        file.flush()
        from_file = demo("run", "demo", "hi", "-n", "4", "--seed", "1", "-sysf", file.name)
    given = demo("run", "demo", "hi", "-n", "4", "--seed", "1", "-sys", "You are a pirate.")
    expect(from_file.stdout == given.stdout, "another answer")
    expect_error(carat("run", "demo", "hi", "-sysf", "/no/such"), 2, "/no/such")


def test_quiet_leaves_the_note_away():
    done = demo("run", "demo", "hi", "-n", "2", "--jinja", "-q")
    expect(done.stderr == b"", done.stderr.decode())


def test_prompt_with_conversation_is_the_first_message():
    if not DEMO.exists():
        raise Skip("models/demo.gguf is not there")
    terminal = Terminal("-m", str(DEMO), "-cnv", "-p", "Hello", "-n", "4", "--temp", "0")
    terminal.wait_for("/think on")
    terminal.wait_for("> ")
    terminal.send("\x04")
    expect(terminal.status() == 0, "status")


def test_single_turn_leaves_after_one_answer():
    if not DEMO.exists():
        raise Skip("models/demo.gguf is not there")
    terminal = Terminal("run", str(DEMO), "-st", "-n", "4")
    terminal.wait_for("> ")
    terminal.send("hello\r")
    expect(terminal.status() == 0, "status")


def test_run_on_a_terminal_says_how_to_switch_thinking_on():
    if not DEMO.exists():
        raise Skip("models/demo.gguf is not there")
    terminal = Terminal("run", str(DEMO), "hello", "-n", "2")
    expect(terminal.status() == 0, "status")
    expect("--think switches it on" in terminal.seen, terminal.seen)
    for arguments in (["--think=off"], ["-q"], ["--raw"]):
        terminal = Terminal("run", str(DEMO), "hello", "-n", "2", *arguments)
        expect(terminal.status() == 0, "status")
        expect("--think switches" not in terminal.seen, f"{arguments}: {terminal.seen}")
    expect(b"--think" not in demo("run", "demo", "hello", "-n", "2").stderr, "without a terminal")


if __name__ == "__main__":
    main(globals())
