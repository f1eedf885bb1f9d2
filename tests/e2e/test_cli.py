#!/usr/bin/env python3
"""The program as a process: exit codes, what goes to which stream, fixed forms, signals, terminals.

usage: tests/e2e/test_cli.py PROGRAM [NAME...]      (only tests whose name contains a NAME)

Prints ok, FAIL or skip for every case, then "N passed, N failed, N skipped".
"""
import array
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import tempfile

import program
from program import (DEMO, FIXTURES, LIMIT, MODEL, PROGRAM, ROOT, SETUP, Skip, Terminal, carat,
                     environment, expect, expect_error, expect_status, libraries, long_model,
                     need_demo, need_json, patched_model)


# ---- Usage ------------------------------------------------------------------------------------

def test_help_and_version_go_to_stdout():
    done = carat("--help")
    expect_status(done, 0)
    expect(b"usage: carat" in done.stdout and done.stderr == b"", "help")
    done = carat("--version")
    expect_status(done, 0)
    expect(re.match(rb"carat \d+\.\d+\.\d+ \(commit [0-9a-f]+|carat \d", done.stdout), "version")
    expect(libraries() and libraries() == libraries().strip(), repr(libraries()))


def test_every_command_has_help():
    names = re.findall(r"^  (\w+) ", carat("help").stdout.decode(), re.MULTILINE)
    expect(len(names) >= 14, f"{len(names)} commands")
    for name in names:
        done = carat(name, "--help")
        expect_status(done, 0)
        expect(done.stdout.startswith(f"carat {name}: ".encode()), name)
        expect(done.stdout == carat("help", name).stdout, f"help {name}")
        expect(not re.search(rb" +$", done.stdout, re.MULTILINE), f"{name}: blanks at line ends")


def test_help_is_about_one_command():
    expect_error(carat("help", "run", "serve"), 2, "one command", "carat help run")


def test_no_command_is_wrong_usage():
    expect_status(carat(), 2)


def test_unknown_command_names_the_nearest():
    expect_error(carat("tokenise"), 2, "tokenise", "tokenize")


def test_unknown_option_names_the_nearest():
    expect_error(carat("run", MODEL, "--tempp", "1"), 2, "--tempp", "--temp?")
    expect_error(carat("bench", MODEL, "--repetition", "1"), 2, "--repetitions")


def test_a_text_that_begins_like_an_option_is_told_the_way_in():
    for text in ("- one\n- two", "---\ntitle: notes\n---", "-5 + 3 is what?"):
        expect_error(carat("run", MODEL, text), 2, "unknown option", "-- before")
        expect_status(carat("run", MODEL, "-n", "2", "--", text), 0)
    expect(b"-- before" not in carat("show", MODEL, "- one").stderr, "show takes no text")


def test_option_of_another_command_is_explained():
    expect_error(carat("run", MODEL, "--users", "2"), 2, "--users", "carat bench")


def test_bad_values_name_flag_and_range():
    expect_error(carat("run", MODEL, "hi", "--top-p", "1.5"), 2, "--top-p", "0 to 1")
    expect_error(carat("run", MODEL, "hi", "--top-k", "many"), 2, "--top-k", "many")
    expect_error(carat("run", MODEL, "hi", "--think=maybe"), 2, "--think", "on|off")
    expect_error(carat("run", MODEL, "hi", "-n"), 2, "-n", "missing")
    expect_error(carat("run", MODEL, "hi", "--raw=perhaps"), 2, "--raw", "on nor off")
    expect_error(carat("run", MODEL, "hi", "--mlock=1"), 2, "--mlock", "no value")
    expect_error(carat("run", MODEL, "hi", "--temp", "nan"), 2, "--temp")
    expect_error(carat("run", MODEL, "hi", "--seed", "99999999999999999999"), 2, "--seed")


def test_model_missing_from_the_line_is_wrong_usage():
    expect_error(carat("tokenize"), 2, "MODEL is missing", "usage: carat tokenize")


def test_model_not_found_names_the_places():
    with tempfile.TemporaryDirectory() as folder:
        env = environment(CARAT_MODELS=folder, XDG_DATA_HOME="/xdg")
        expect_error(carat("show", "nosuch", env=env), 3, folder, "models", "/xdg/carat/models")
    expect_error(carat("show", "/no/such.gguf"), 3, "/no/such.gguf")


def test_an_empty_name_of_a_model_is_wrong_usage():
    """A variable of a shell that is not set."""
    for command in (["run", "", "hi"], ["serve", ""], ["show", ""]):
        expect_error(carat(*command), 2, "the name of the model is empty")


def test_model_is_found_by_name_in_a_folder():
    env = environment(CARAT_MODELS=str(FIXTURES))
    for name in ("e2b-q8_0", "e2b-q8_0.gguf"):
        expect_status(carat("tokenize", name, "Hi", env=env, cwd="/"), 0)


def test_environment_gives_options_and_flags_win():
    env = environment(CARAT_JSON="1", CARAT_MODEL=MODEL)
    done = carat("tokenize", stdin=b"Hi", env=env)
    expect_status(done, 0)
    expect("ids" in json.loads(done.stdout), "CARAT_JSON")
    env = environment(CARAT_SEED="3", CARAT_TEMP="1", CARAT_MAX_TOKENS="2")
    done = carat("run", MODEL, "hi", "--json", "--seed", "4", env=env)
    result = json.loads(done.stdout)
    expect(result["seed"] == 4 and result["generated_tokens"] <= 2, str(result))


def test_environment_takes_all_long_names_of_an_option():
    def temp(**variables):
        done = carat("config", "run", env=environment(**variables))
        return re.search(r"(?m)^temp +(.*?) *$", done.stdout.decode()).group(1).split()
    expect(temp(CARAT_TEMPERATURE="0.5") == ["0.5", "CARAT_TEMPERATURE"], "another name")
    both = temp(CARAT_TEMPERATURE="0.5", CARAT_TEMP="2")
    expect(both == ["2", "CARAT_TEMP"], f"its own name wins: {both}")
    expect_error(carat("run", MODEL, "hi", env=environment(CARAT_TEMPERATURE="0,5")), 2,
                 "CARAT_TEMPERATURE")


def test_a_flag_takes_back_what_the_environment_switches_on():
    env = environment(CARAT_IDS="on")
    expect(carat("tokenize", MODEL, "Hi", env=env).stdout.startswith(b"["), "on")
    done = carat("tokenize", MODEL, "Hi", "--ids=off", env=env)
    expect(done.returncode == 0 and not done.stdout.startswith(b"["), str(done.stdout))
    expect_error(carat("tokenize", MODEL, "Hi", "--ids=perhaps"), 2, "--ids")


def test_bad_environment_names_the_variable():
    expect_error(carat("run", MODEL, "hi", env=environment(CARAT_TOP_K="x")), 2, "CARAT_TOP_K")


def test_completions_are_valid_scripts():
    for shell in ("bash", "zsh", "fish"):
        script = carat("completion", shell)
        expect_status(script, 0)
        if shell == "bash" or shutil.which(shell):
            done = subprocess.run([shell, "-n"], input=script.stdout, capture_output=True)
            expect(done.returncode == 0, f"{shell}: {done.stderr[:200]!r}")
    expect_error(carat("completion", "tcsh"), 2, "bash, zsh or fish")


def test_bash_completes_commands_options_and_words():
    script = carat("completion", "bash").stdout.decode()
    for line, cursor, wanted in (("carat to", 1, "tokenize"), ("carat run m --te", 3, "--temp"),
                                 ("carat run m --think o", 4, "off"),
                                 ("carat help de", 2, "detokenize"),
                                 ("carat config se", 2, "serve"),
                                 ("carat completion z", 2, "zsh")):
        words = " ".join(f"'{w}'" for w in line.split())
        ask = (f"{script}\nCOMP_WORDS=({words}); COMP_CWORD={cursor}; _carat; "
               "printf '%s\\n' \"${COMPREPLY[@]}\"")
        done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True)
        expect(wanted in done.stdout.split(), f"{line}: {done.stdout!r} {done.stderr!r}")


def test_options_document_is_up_to_date():
    document = ROOT / "docs/options.md"
    text = carat("help", "--markdown").stdout
    expect(document.exists() and document.read_bytes() == text,
           "it is old: run ./dev docs")


def test_manual_page_is_roff():
    text = carat("man").stdout.decode()
    expect(text.startswith(".TH CARAT 1") and ".SH COMMANDS" in text, text[:80])
    if shutil.which("man"):
        done = subprocess.run(["man", "--warnings", "-l", "-"], input=text.encode(),
                              capture_output=True, env={**os.environ, "MANPAGER": "cat"})
        expect(done.stderr == b"", done.stderr.decode()[:300])


# ---- Streams ----------------------------------------------------------------------------------

def test_stdout_holds_only_the_answer():
    done = carat("run", MODEL, "hello", "-n", "4", "--temp", "0", "--stats")
    expect_status(done, 0)
    expect(done.stdout.endswith(b"\n"), "final newline")
    expect(b"carat" not in done.stdout and b"t/s" in done.stderr, "statistics on stderr")
    quiet = carat("run", MODEL, "hello", "-n", "4", "--temp", "0", "-q")
    expect(quiet.stdout == done.stdout and quiet.stderr == b"", "--quiet")


def test_no_progress_or_colour_without_a_terminal():
    done = carat("run", MODEL, "hello", "-n", "2", "--think", "on")
    expect(b"\x1b" not in done.stdout + done.stderr and b"\r" not in done.stderr, "escapes")


def test_what_computes_is_told_once_unless_quiet():
    calls = (["run", MODEL, "hi", "-n", "2"], ["chat", MODEL, "-n", "2"],
             ["bench", MODEL, "-p", "4,8", "-n", "0", "-r", "1", "--chunk", "4,8"],
             ["logits", MODEL, "--tokens", "2", "-o", "/dev/null"],
             ["perplexity", MODEL, "-f", ROOT / "LICENSE", "-c", "64", "--chunks", "1"])
    for call in calls:
        backend = [] if call[0] == "logits" else ["--backend", "cpu"]
        done = carat(*call, *backend, stdin=b"a\nb\n" if call[0] == "chat" else b"")
        expect_status(done, 0)
        expect(done.stderr.count(b"carat: note: on ") == 1, f"{call[0]}: {done.stderr!r}")
        quiet = carat(*call, *backend, "-q")
        expect(b"note: on " not in quiet.stderr, f"{call[0]} -q: {quiet.stderr!r}")


def test_memory_is_told_before_it_is_taken():
    calls = (["run", MODEL, "hi", "-n", "2"], ["chat", MODEL, "-n", "2"],
             ["bench", MODEL, "-p", "4", "-n", "0", "-r", "1"])
    for call in calls:
        call = call + ["--backend", "cpu"]
        done = carat(*call)
        expect_status(done, 0)
        lines = [x for x in done.stderr.decode().splitlines() if "note: memory: " in x]
        expect(len(lines) == 1 and "KV cache" in lines[0], f"{call[0]}: {lines}")
        whole = carat(*call, "--verbose").stderr.decode()
        rows = re.findall(r"^  (\S.*?) +[0-9.]+ MiB +(\d+) bytes$", whole, re.MULTILINE)
        names = [name for name, _ in rows]
        expect(names[:2] == ["weights (mapped file)", "weights (as computed with)"], whole)
        taken = {name: int(n) for name, n in rows}
        parts = [n for name, n in rows[:names.index("total")]]
        expect(sum(map(int, parts)) == taken["total"], whole)
        quiet = carat(*call, "--verbose", "-q")
        expect(b"mapped file" not in quiet.stderr, f"{call[0]} -q: {quiet.stderr!r}")
    run = carat("run", MODEL, "hi", "-n", "2", "-c", "128", "--verbose", "--backend", "cpu")
    show = carat("show", MODEL, "--fit", "128", "--backend", "cpu").stdout.decode()
    table = show[show.index("memory with 128 positions"):]
    cut = table.index("  available now")
    expect(table[:cut] in run.stderr.decode(), "run --verbose is the table of show --fit")


def test_bench_shows_the_share_of_the_limit():
    call = ["bench", MODEL, "-p", "4", "-n", "0", "-r", "1", "--backend", "cpu"]
    expect(b"limits measured in this run" in carat(*call).stdout, "by default")
    for flag in ("-q", "--no-roofline"):
        expect(b"limits measured" not in carat(*call, flag).stdout, flag)
    row = json.loads(carat(*call, "-o", "jsonl", "--roofline").stdout)
    expect(row["read_limit_gbs"] > 0 and row["read_share"] > 0, str(row))


def test_memory_of_a_gpu_can_be_bounded():
    sizes = ("11G", "11GiB", "11gb", "0.5T", "4096M", "12000000000", "90%")
    for size in sizes:
        expect_status(carat("show", MODEL, "--gpu-memory", size), 0)
    for size in ("11X", "%", "0", "-1G", "101%", "0.5%", "12.5%", "11 G B", "GB", "11GBB", ""):
        expect_error(carat("show", MODEL, "--gpu-memory", size), 2, "--gpu-memory", "90%")


def test_memory_of_the_cache_can_be_bounded():
    for size in ("2G", "512MiB", "0.5gb", "12000000000"):
        expect_status(carat("show", MODEL, "--cache-memory", size), 0)
    for size in ("90%", "11X", "0", "-1G", ""):
        expect_error(carat("show", MODEL, "--cache-memory", size), 2, "--cache-memory", "11.5GB")
    expect_status(carat("show", MODEL, "--cache-split", "1k", "--no-prefix-cache"), 0)
    expect_error(carat("show", MODEL, "--cache-split", "63"), 2, "--cache-split", "64")


def test_a_missing_gpu_is_explained_everywhere():
    backends = json.loads(carat("version", "--json").stdout)["backends"]
    expect([b["name"] for b in backends] == ["cuda", "cpu", "ref"], str(backends))
    expect(not backends[1]["problem"] and not backends[2]["problem"], str(backends))
    problem = backends[0]["problem"]
    if not problem:
        raise Skip("there is a GPU")
    line = f"backends: cuda ({problem}), cpu, ref\n"
    expect(line in carat("version").stdout.decode(), "version")
    done = carat("run", MODEL, "hi", "-n", "2", "--stats")
    lines = [x for x in done.stderr.decode().splitlines() if f"(cuda: {problem})" in x]
    expect(len(lines) == 2 and "note: on" in lines[0] and "t/s" in lines[1], str(done.stderr))
    named = carat("run", MODEL, "hi", "-n", "2", "--backend", "cpu").stderr.decode()
    expect("cuda" not in named, f"a backend by name: {named}")
    expect_error(carat("run", MODEL, "hi", "--backend", "cuda"), 5, f"cuda: {problem}")
    report = json.loads(carat("doctor", "--json").stdout)
    expect(report["backends"] == backends, str(report))
    expect(f"cuda ({problem})" in carat("doctor").stdout.decode(), "doctor")


def test_json_tells_what_computed():
    result = answer("hello", "-n", "1", "--backend", "cpu", "--kv-type", "f32")["setup"]
    expect(result["backend"] == "cpu" and result["device"], str(result))
    expect(result["second_device"] is None and result["ple_place"] is None, str(result))
    expect(result["gpu_layers"] == result["n_layer"] > 0, str(result))
    expect(result["layers_reason"] == "default", str(result))
    expect((result["kv_type"], result["kv_reason"]) == ("f32", "asked"), str(result))
    result = answer("hello", "-n", "1", "--backend", "cpu", "-ngl", "4")["setup"]
    expect(0 < result["gpu_layers"] < result["n_layer"], str(result))
    expect(result["layers_reason"] == "asked", str(result))
    expect(result["second_device"] and result["kv_type"] == "f16", str(result))


def test_full_disk_is_an_error():
    for arguments in (["help"], ["help", "serve"], ["man"], ["help", "--markdown"],
                      ["show", MODEL], ["run", MODEL, "hi", "-n", "3"],
                      ["tokenize", MODEL, "--json", "x"], ["bench", MODEL, "-p", "4", "-n", "0"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([PROGRAM, *arguments], stdin=subprocess.DEVNULL, stdout=full,
                                  stderr=subprocess.PIPE, env=environment(), timeout=LIMIT)
        expect(done.returncode == 1, f"{arguments[0]}: status {done.returncode}")
        expect(b"standard output" in done.stderr, f"{arguments[0]}: {done.stderr!r}")


def test_closed_stdout_is_an_error():
    done = subprocess.run(["sh", "-c", f'"{PROGRAM}" version >&-'], capture_output=True,
                          env=environment())
    expect(done.returncode == 1 and b"standard output" in done.stderr, str(done))


def test_reader_that_leaves_is_no_noise():
    done = subprocess.run(["bash", "-c", f'"{PROGRAM}" run "{MODEL}" hi -n 200 -q | head -c 1; '
                           "echo ${PIPESTATUS[0]}"], capture_output=True, env=environment(),
                          stdin=subprocess.DEVNULL, timeout=LIMIT)
    expect(done.stderr == b"", done.stderr.decode())
    expect(done.stdout.strip().endswith((b"141", b"0")), str(done.stdout))


def test_output_file_cannot_be_written():
    expect_error(carat("run", MODEL, "hi", "-o", "/no/such/file"), 1, "/no/such/file")
    expect_error(carat("logits", MODEL, "--tokens", "2", "-o", "/dev/full"), 1, "/dev/full")


# ---- Numbers ----------------------------------------------------------------------------------

def read_floats(path):
    values = array.array("f")
    values.frombytes(pathlib.Path(path).read_bytes())
    return values


def test_logits_forms_agree():
    with tempfile.TemporaryDirectory() as folder:
        out, ids = os.path.join(folder, "o.f32"), os.path.join(folder, "ids")
        pathlib.Path(ids).write_text("[2, 5,\n7 9]")
        done = carat("logits", MODEL, "--tokens", "2,5,7,9", "--all", "-o", out)
        expect_status(done, 0)
        report = json.loads(done.stdout)
        expect(report["rows"] == 4 and report["vocab"] == 768 and report["seconds"] > 0,
               str(report))
        every = read_floats(out)
        expect(len(every) == 4 * 768, "size")
        expect_status(carat("logits", MODEL, "--tokens-file", ids, "-o", out), 0)
        expect(read_floats(out) == every[3 * 768:], "last position")
        expect_status(carat("logits", MODEL, "--tokens-file", ids, "--at", "0,2", "-o", out), 0)
        expect(read_floats(out) == every[:768] + every[2 * 768:3 * 768], "--at")
        expect_status(carat("logits", MODEL, "--tokens", "2,5,7,9", "--all", "--chunk", "3", "-o",
                            out), 0)
        chunked = read_floats(out)
        worst = max(abs(a - b) for a, b in zip(chunked, every))
        expect(worst < 1e-4, f"--chunk changes logits by {worst}")


def test_logits_agree_with_the_fixture():
    facts = json.loads((FIXTURES / "e2b-q8_0.json").read_text())
    tokens, positions = facts["tokens"], facts["logits_positions"]
    wanted = read_floats(FIXTURES / "e2b-q8_0.logits.f32")
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "o.f32")
        done = carat("logits", MODEL, "--tokens", ",".join(map(str, tokens)), "--at",
                     ",".join(map(str, positions)), "-o", out)
        expect_status(done, 0)
        found = read_floats(out)
    expect(len(found) == len(wanted), f"{len(found)} numbers, {len(wanted)} expected")
    error = sum((a - b) ** 2 for a, b in zip(found, wanted)) ** 0.5
    size = sum(b * b for b in wanted) ** 0.5
    expect(error / size < 1e-4, f"relative error {error / size:.3g}")


def test_a_model_of_few_positions_is_used_whole():
    with tempfile.TemporaryDirectory() as folder:
        path, out = os.path.join(folder, "m.gguf"), os.path.join(folder, "o.f32")
        for positions in (2, 17, 63):
            patched_model(path, context_length=positions,
                          attention__sliding_window=min(positions, 32))
            for n in (1, positions):
                done = carat("logits", path, "--tokens", ",".join(["5"] * n), "--all", "-o", out)
                expect_status(done, 0)
                expect(json.loads(done.stdout)["rows"] == n, str(done.stdout))
            done = carat("logits", path, "--tokens", "5," * (positions + 1), "-o", out)
            expect_error(done, 2, str(positions))
        expect_status(carat("bench", path, "-p", "8", "-n", "4", "-r", "1", "-q"), 0)


def test_logits_refuse_wrong_tokens():
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "o.f32")
        for arguments, word in ((["--tokens", "2,99999"], "99999"), (["--tokens", ""], "token"),
                                (["--tokens", "2,-1"], "--tokens"), ([], "--tokens"),
                                (["--tokens", "2", "--at", "1"], "position 1"),
                                (["--tokens", "2,3", "--at", "1,0"], "ascend"),
                                (["--tokens", "2", "--all", "--at", "0"], "--all")):
            expect_error(carat("logits", MODEL, *arguments, "-o", out), 2, word)
            expect(not os.path.exists(out), "no file is left behind")
        expect_error(carat("logits", MODEL, "--tokens", "2"), 2, "-o FILE")


def perplexity_text(folder):
    path = os.path.join(folder, "text")
    pathlib.Path(path).write_text("The quick brown fox jumps over the lazy dog. " * 12)
    return path


# Deterministic, as the file has 16 bits of a logit: with AMX's prompts two of a row become equal.
def test_perplexity_compares_with_a_base_file():
    with tempfile.TemporaryDirectory() as folder:
        text, base = perplexity_text(folder), os.path.join(folder, "base")
        first = carat("perplexity", MODEL, "-f", text, "-c", "32", "--chunks", "3",
                      "--save-logits", base, "-o", "json", "--deterministic")
        expect_status(first, 0)
        report = json.loads(first.stdout)
        expect(report["scored"] == 3 * 15 and report["ppl"] > 1, str(report))
        same = json.loads(carat("perplexity", MODEL, "--kl", base, "-o", "json",
                                "--deterministic").stdout)
        expect(same["kl_max"] < 1e-4 and same["same_top_percent"] == 100, str(same))
        expect(abs(same["ppl"] / report["ppl"] - 1) < 1e-6, str(same))
        other = carat("perplexity", FIXTURES / "e4b-q4_0.gguf", "--kl", base, "-o", "json")
        expect(json.loads(other.stdout)["kl_mean"] > same["kl_mean"], str(other))


def test_base_files_are_validated():
    with tempfile.TemporaryDirectory() as folder:
        text, base = perplexity_text(folder), os.path.join(folder, "base")
        bad = os.path.join(folder, "bad")
        expect_status(carat("perplexity", MODEL, "-f", text, "-c", "32", "--chunks", "2",
                            "--save-logits", base), 0)
        data = pathlib.Path(base).read_bytes()
        broken = {
            "cut short": data[:-1], "empty": b"", "only a header": data[:48],
            "magic": b"X" + data[1:], "version": data[:8] + b"\x02" + data[9:],
            "type": data[:12] + b"\x07" + data[13:],
            "vocabulary size": data[:16] + struct.pack("<I", 1 << 31) + data[20:],
            "chunks": data[:28] + struct.pack("<I", 0xFFFFFFFF) + data[32:],
            "other vocabulary": data[:32] + b"\0" * 8 + data[40:],
            "token": data[:48] + struct.pack("<i", -5) + data[52:],
        }
        for name, content in broken.items():
            pathlib.Path(bad).write_bytes(content)
            done = carat("perplexity", MODEL, "--kl", bad)
            expect(done.returncode == 3, f"{name}: status {done.returncode} {done.stderr!r}")
        done = carat("perplexity", MODEL, "-f", text, "-c", "48", "--kl", base)
        expect_error(done, 3, "another text")


def test_perplexity_needs_a_text():
    expect_error(carat("perplexity", MODEL), 2, "-f FILE")
    expect_error(carat("perplexity", MODEL, "-f", "/dev/null"), 2, "tokens")


# The keys by which compare-llama-bench.py of llama.cpp distinguishes results, and that it reads.
COMPARED_KEYS = ("cpu_info gpu_info backends n_gpu_layers tensor_buft_overrides model_filename "
                 "model_type n_batch n_ubatch embeddings cpu_mask cpu_strict poll n_threads type_k "
                 "type_v use_mmap no_kv_offload split_mode main_gpu tensor_split flash_attn "
                 "n_prompt n_gen n_depth").split()
BENCH_KEYS = COMPARED_KEYS + ("build_commit build_number model_size model_n_params n_cpu_moe "
                              "devices no_op_offload no_host test_time avg_ns stddev_ns avg_ts "
                              "stddev_ts samples_ns samples_ts n_users work_bytes "
                              "work_operations").split()


def bench(*arguments):
    done = carat("bench", MODEL, *arguments)
    expect_status(done, 0)
    return done.stdout.decode()


def test_bench_json_has_the_known_keys():
    rows = json.loads(bench("-p", "8", "-n", "4", "-d", "0,16", "-r", "2", "-t", "2", "-o", "json"))
    expect(len(rows) == 4, f"{len(rows)} rows")
    expect(sorted(rows[0]) == sorted(BENCH_KEYS), str(sorted(rows[0])))
    expect([r["n_depth"] for r in rows] == [0, 0, 16, 16], "order")
    expect(all(len(r["samples_ns"]) == 2 and r["avg_ts"] > 0 for r in rows), "samples")
    expect(rows[0]["n_threads"] == min(2, len(os.sched_getaffinity(0))), "threads")


def test_bench_has_a_column_for_what_varies():
    def titles(*arguments):
        return bench("-p", "4", "-n", "0", "-r", "1", *arguments).splitlines()[0].split()[1::2]
    usual = ["model", "size", "params", "backend", "test", "t/s"]
    expect(titles() == usual, str(titles()))
    for flags, title in ((["-t", "1,2"], "threads"), (["-ub", "2,4"], "n_ubatch"),
                         (["--kv-type", "f16,f32"], "type_kv"), (["--users", "1,2"], "n_users"),
                         (["-b", "2,4"], "n_batch"), (["-ngl", "0,all"], "ngl")):
        found = titles(*flags)
        expect(title in found and len(found) >= len(usual) + 1, f"{flags}: {found}")


def test_bench_takes_several_models():
    other = str(FIXTURES / "12b-q4_k.gguf")
    done = carat("bench", "-m", MODEL, "-m", other, "-p", "4", "-n", "0", "-r", "1", "-o", "json",
                 "-oe", "csv")
    expect_status(done, 0)
    rows = json.loads(done.stdout)
    expect([row["model_filename"] for row in rows] == [MODEL, other], str(rows))
    expect(rows[0]["model_type"] == "gemma4 other Q8_0", rows[0]["model_type"])
    table = [line for line in done.stderr.decode().splitlines() if "note:" not in line]
    expect(len(table) == 3 and table[0].startswith("build_commit,"), str(table))
    both = json.loads(carat("bench", MODEL, other, "-p", "4", "-n", "0", "-r", "1", "-o",
                            "json").stdout)
    expect(len(both) == 2, "two arguments")
    expect_error(carat("bench", MODEL, "nosuch", "-p", "4", "-n", "0", "-o", "json"), 3, "nosuch")


def test_bench_formats_say_the_same():
    lines = bench("-p", "8-16*2", "-n", "0", "-r", "1", "-o", "jsonl").splitlines()
    expect([json.loads(line)["n_prompt"] for line in lines] == [8, 16], "jsonl, range")
    table = bench("-p", "8", "-n", "4", "-d", "16", "-r", "1", "--users", "1,2")
    expect("pp8 @ d16" in table and "tg4 @ d16" in table and "build: " in table, table)
    csv = bench("-p", "4-8+4", "-n", "0", "-r", "1", "-o", "csv").splitlines()
    expect(len(csv) == 3 and csv[0].startswith("build_commit,"), str(csv))
    sql = bench("-p", "4", "-n", "0", "-r", "1", "-o", "sql")
    import sqlite3
    base = sqlite3.connect(":memory:")
    base.executescript(sql)
    expect(base.execute("select n_prompt from llama_bench").fetchall() == [(4,)], "sql")
    joined = " and ".join(f"a.{key} = b.{key}" for key in COMPARED_KEYS)
    rows = base.execute(f"select a.avg_ts from llama_bench a join llama_bench b on {joined}")
    expect(len(rows.fetchall()) == 1, "two results are compared by these columns")
    pair = json.loads(bench("-p", "0", "-n", "0", "-pg", "4,2", "-r", "1", "-o", "json"))
    expect((pair[0]["n_prompt"], pair[0]["n_gen"]) == (4, 2), "-pg")


def test_bench_knows_every_type_of_cache():
    for name in ("auto", "f16", "bf16", "f32", "q8_0"):
        rows = json.loads(bench("-p", "4", "-n", "0", "-r", "1", "--kv-type", name, "-o", "json",
                                "--backend", "ref"))
        expect(name in ("auto", rows[0]["type_k"]), str(rows[0]["type_k"]))


def test_bench_refuses_wrong_lists():
    for text in ("x", "8-", "8-16*1", "1,,2", "0-5*2", "-4", "1-1000"):
        expect_error(carat("bench", MODEL, "-p", text), 2, "--n-prompt")
    expect_error(carat("bench", MODEL, "-p", "0", "-n", "0"), 2, "nothing to measure")
    expect_error(carat("bench", MODEL, "--users", "0"), 2, "--users")
    expect_error(carat("bench", MODEL, "--kv-type", "f16,"), 2, '"" is not one of')
    expect_error(carat("bench", MODEL, "--kv-type", "f16," * 64 + "f16"), 2, "at most 64 values")


# ---- Files and machine ------------------------------------------------------------------------

def test_show_describes_a_file():
    done = carat("show", MODEL, "--json")
    expect_status(done, 0)
    facts = json.loads(done.stdout)
    keys = {"path", "metadata", "tensors", "problem", "model", "memory"}
    expect(keys <= set(facts), str(sorted(facts)))
    need_json()
    text = carat("show", MODEL, "--kv", "--tensors", "--fit", "128").stdout.decode()
    for word in ("general.architecture", "token_embd.weight", "128 positions", "memory"):
        expect(word in text, word)


def test_malformed_files_give_status_3():
    data = pathlib.Path(MODEL).read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bad.gguf")
        for name, content in (("empty", b""), ("magic", b"XXXX" + data[4:]),
                              ("cut", data[:len(data) // 2]), ("header", data[:20])):
            pathlib.Path(path).write_bytes(content)
            for command in (["show"], ["run", "-p", "hi"], ["tokenize"]):
                done = carat(command[0], path, *command[1:])
                expect(done.returncode == 3, f"{name}, {command[0]}: {done.returncode}")
                expect(done.stderr.startswith(b"carat: error: "), str(done.stderr))
        os.mkfifo(os.path.join(folder, "pipe"))
        expect_error(carat("show", os.path.join(folder, "pipe")), 3)
        expect_error(carat("show", folder), 3, "directory")


def test_names_in_files_cannot_reach_the_terminal():
    need_json()
    data = pathlib.Path(MODEL).read_bytes()
    name = json.loads(carat("show", MODEL, "--json").stdout)["model"]["name"].encode()
    evil = b"\x1b]0;evil\x07"[:len(name)].ljust(len(name), b"\x9b")
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        file.write(data.replace(name, evil))
        file.flush()
        done = carat("show", file.name, "--kv")
    expect(b"\x1b" not in done.stdout + done.stderr and b"\x07" not in done.stdout, "escapes")


def test_file_cut_while_in_use_is_explained():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        shutil.copy(long_model(), path)
        child = subprocess.Popen([PROGRAM, "run", path, "hi", "--ignore-eos", "-c", "200000"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 stdin=subprocess.DEVNULL, env=environment())
        child.stdout.read(1)
        os.truncate(path, 4096)
        _, err = child.communicate(timeout=LIMIT)
        expect(child.returncode == 3, f"status {child.returncode}: {err!r}")
        expect(b"was cut short while in use" in err and b"hint: " in err, str(err))


def test_plan_prints_a_program():
    done = carat("plan", MODEL, "--rows", "4", "--outs", "1")
    expect_status(done, 0)
    expect(b"MATMUL" in done.stdout and b"ATTENTION" in done.stdout, str(done.stdout[:80]))
    expect_error(carat("plan", MODEL, "--rows", "1", "--outs", "2"), 2, "--outs")


def test_more_threads_than_can_run_are_noted_and_not_started():
    most = len(os.sched_getaffinity(0))  # a quota may leave less
    if 4 * most >= 512:
        raise Skip("512 threads can run here")
    for name in ("run", "bench"):
        call = (name, MODEL, *(["hi"] if name == "run" else ["-p", "4", "-r", "1"]), "-n", "2",
                "--backend", "cpu", "--threads")
        done = carat(*call, "512")
        expect_status(done, 0)
        told = re.search(rb"note: --threads 512: only (\d+) can run", done.stderr)
        expect(told and 1 <= int(told[1]) <= most, f"{name}: {done.stderr!r}")
        expect(re.search(rb"note: on .*\b%d thread" % int(told[1]), done.stderr), str(done.stderr))
        expect(b"--threads" not in carat(*call, "1").stderr, "one thread")
    expect_error(carat("run", MODEL, "hi", "--threads", "513"), 2, "0 to 512")


def test_doctor_reports_and_tests_itself():
    done = carat("doctor", "--json")
    expect_status(done, 0)
    report = json.loads(done.stdout)
    expect(report["cores"] >= 1 and report["devices"], str(report))
    expect(report["self_test"] in ("passed", "skipped"), str(report))
    if DEMO.exists() and DEMO.with_suffix(".check").exists():
        expect(report["self_test"] == "passed", str(report))
    expect_status(carat("doctor"), 0)


def test_unknown_backend_is_refused():
    expect_error(carat("run", MODEL, "hi", "--backend", "tpu"), 2, "--backend")
    done = carat("run", MODEL, "hi", "-n", "1", "--backend", "cuda")
    expect(done.returncode in (0, 2, 5), f"status {done.returncode}")


def test_layers_on_a_second_device_change_nothing():
    name = need_demo()
    call = ("run", name, "Tell me a story about a small dog.", "--backend", "cpu", "--seed", "7",
            "-n", "40")
    whole = carat(*call)
    expect_status(whole, 0)
    for layers in ("0", "4", "100"):
        parts = carat(*call, "--gpu-layers", layers)
        expect_status(parts, 0)
        expect(parts.stdout == whole.stdout, f"{layers} layers: {parts.stdout[:80]!r}")
    text = carat("plan", name, "--backend", "cpu", "-ngl", "4").stdout.decode()
    expect("# segment 2 of 2, on cpu" in text, text[:200])
    memory = json.loads(carat("show", name, "--backend", "cpu", "-ngl", "4", "--json").stdout)
    expect(memory["memory"]["gpu_layers"] == 4, str(memory["memory"]))
    expect(memory["memory"]["second_total"] > 0, str(memory["memory"]))


def test_a_gpu_answers_like_the_cpu():
    need_demo()
    report = json.loads(carat("doctor", "--json").stdout)
    gpus = [d for d in report["devices"] if d["backend"] == "cuda"]
    if not gpus:
        raise Skip("no CUDA device")
    for gpu in gpus:
        expect(gpu["matmul_fp16_gops"] > 0 and gpu["matmul_int8_gops"] > 0, str(gpu))
        is_half = 1.1 * gpu["matmul_fp16_gops"] >= gpu["matmul_int8_gops"] - 1
        expect(gpu["matmul"] == ("fp16" if is_half else "int8"), str(gpu))
    report = json.loads(carat("doctor", "--json", "--backend", "cuda").stdout)
    expect(report["self_test"] == "passed", str(report))


# ---- Answers ----------------------------------------------------------------------------------

def answer(*arguments, stdin=b"", **more):
    done = carat("run", MODEL, *arguments, "--json", stdin=stdin, **more)
    expect_status(done, 0)
    return json.loads(done.stdout)


def test_same_seed_same_answer():
    first = answer("hello", "-n", "12", "--seed", "5")
    expect(answer("hello", "-n", "12", "--seed", "5")["text"] == first["text"], "seed 5")
    others = {answer("hello", "-n", "12", "--seed", str(s))["text"] for s in range(6, 10)}
    expect(others != {first["text"]}, "other seeds differ")
    greedy = [answer("hello", "-n", "8", "--temp", "0", "--seed", s)["text"] for s in "12"]
    expect(greedy[0] == greedy[1], "temperature 0")


def test_prompts_from_everywhere_are_joined():
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("from a file")
        file.flush()
        long = answer("-f", file.name, "-n", "1", stdin=b"from a pipe")
        short = answer("-f", file.name, "-n", "1")
        expect(long["prompt_tokens"] > short["prompt_tokens"], "piped text counts")
    by_flag = answer("-p", "a b", "-n", "1")["prompt_tokens"]
    expect(by_flag == answer("a", "b", "-n", "1")["prompt_tokens"], "-p and arguments")
    expect(by_flag == answer("-n", "1", stdin=b"a b")["prompt_tokens"], "pipe alone")


def test_empty_prompt_without_a_terminal_does_not_wait():
    expect_error(carat("run", MODEL), 2, "prompt is empty")


def test_no_limit_of_tokens_ends_at_the_context():
    result = answer("hello", "-c", "64", "--ignore-eos")
    expect(result["finish"] == "length", str(result))
    expect(result["prompt_tokens"] + result["generated_tokens"] in (64, 65), str(result))
    expect(result["finish_reason"] == "length" and result["is_context_full"], str(result))


def test_only_an_answer_that_the_context_cut_is_said_to_be_cut():
    call = ("run", MODEL, "hello", "-c", "64", "--ignore-eos")
    done = carat(*call)
    expect_status(done, 0)
    expect(b"answer is cut: the context of 64 positions is full" in done.stderr, str(done.stderr))
    expect(b"answer is cut" not in carat(*call, "-q").stderr, "-q")
    expect(b"answer is cut" not in carat(*call, "-n", "5").stderr, "-n is the user's own limit")
    bans = [word for id in (1, 50, 106) for word in ("--logit-bias", f"{id}=-inf")]
    done = carat("chat", MODEL, "-c", "64", *bans, stdin=b"hello\n")
    expect(b"cut: the context of 64 positions is full; /undo or /clear" in done.stderr, "chat")
    limited = answer("hello", "-c", "64", "--ignore-eos", "-n", "5")
    expect(limited["finish_reason"] == "length" and not limited["is_context_full"], str(limited))


def test_prompt_beyond_the_context_is_refused_with_numbers():
    done = carat("run", MODEL, "-c", "64", "word " * 200)
    expect_error(done, 2, "64")


def test_raw_prompt_has_no_template():
    raw = answer("--raw", "Hi", "-n", "1")["prompt_tokens"]
    ids = json.loads(carat("tokenize", MODEL, "--json", "--plain", "--bos", stdin=b"Hi").stdout)
    expect(raw == len(ids["ids"]), f"{raw}")
    expect(answer("Hi", "-n", "1")["prompt_tokens"] > raw, "template")


def test_a_raw_prompt_refuses_what_only_a_template_has():
    for flags in (["--system", "Be brief."], ["--system-file", "nosuch.txt"],
                  ["--tools", "nosuch.json"]):
        expect_error(carat("run", MODEL, "Hi", "--raw", *flags), 2, "--raw", flags[0])


def test_stop_strings_end_the_answer_unseen():
    text = answer("hello", "-n", "24", "--seed", "5")["text"]
    if len(text) < 8:
        raise Skip("the answer is too short to cut")
    clean = re.search(r"[ -~]{3}", text[2:])
    if not clean:
        raise Skip("the answer has no plain text to cut at")
    stop = clean.group()
    cut = answer("hello", "-n", "24", "--seed", "5", "--stop", stop)
    expect(cut["text"] == text[:text.index(stop)], f"{cut['text']!r} of {text!r}")
    expect(cut["finish"] == "stop", cut["finish"])
    plain = carat("run", MODEL, "hello", "-n", "24", "--seed", "5", "--stop", stop).stdout
    streamed = plain.decode(errors="replace").replace("\ufffd", "").rstrip("\n")
    expect(streamed == cut["text"].replace("\ufffd", "").rstrip("\n"), "also when streamed")


def test_logit_bias_favours_and_bans():
    first, second = (json.loads(carat("tokenize", MODEL, "--json", letter).stdout)["ids"][0]
                     for letter in "ab")
    favour = ["hello", "-n", "1", "--temp", "0", "--logit-bias", f"{second}=90"]
    expect(answer(*favour, "--logit-bias", f"{first}=200")["text"] == "a", "favoured")
    expect(answer(*favour, "--logit-bias", f"{first}=-inf")["text"] == "b", "banned")
    expect(answer(*favour, "--logit-bias", f"{first}=-20000")["text"] == "b", "banned")
    done = carat("run", MODEL, "hi", "--logit-bias", f"{first}=20000")
    expect_error(done, 2, "at most 10000 expected, 20000 found")
    for bad in ("x", "5", "5=", "5=x", "99999=1", "5=inf"):
        expect_error(carat("run", MODEL, "hi", "--logit-bias", bad), 2, "--logit-bias")


def test_output_file_holds_the_answer():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "answer")
        done = carat("run", MODEL, "hello", "-n", "6", "--seed", "1", "-o", path)
        expect_status(done, 0)
        plain = carat("run", MODEL, "hello", "-n", "6", "--seed", "1")
        expect(done.stdout == b"" and pathlib.Path(path).read_bytes() == plain.stdout, "-o")


def test_tools_are_read_from_a_file():
    need_json()
    tool = [{"type": "function", "function": {"name": "now", "description": "the time",
             "parameters": {"type": "object", "properties": {}}}}]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(tool, file)
        file.flush()
        with_tools = answer("hello", "-n", "1", "--tools", file.name)["prompt_tokens"]
    expect(with_tools > answer("hello", "-n", "1")["prompt_tokens"] + 5, str(with_tools))
    expect_error(carat("run", MODEL, "x", "--tools", "/dev/null"), 2, "/dev/null")


def test_demo_model_answers():
    name = need_demo()
    done = carat("run", name, "Tell me a story about a small dog.", "--seed", "7", "-n", "60")
    expect_status(done, 0)
    words = re.findall(r"[a-z]+", done.stdout.decode().lower())
    expect(len(words) > 20 and len(set(words)) > 10, done.stdout.decode())


# ---- Signals and terminals --------------------------------------------------------------------

def start_long_answer():
    child = subprocess.Popen([PROGRAM, "run", long_model(), "hi", "--ignore-eos", "-c", "200000"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env=environment())
    child.first = child.stdout.read(1)
    return child


def test_interrupt_stops_the_answer():
    child = start_long_answer()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=LIMIT)
    expect(child.returncode == 130, f"status {child.returncode}")
    err = SETUP.sub("", err.decode())
    expect((child.first + out).endswith(b"\n") and err == "", f"{out[-20:]!r}, {err!r}")


def test_terminate_gives_143():
    child = start_long_answer()
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=LIMIT)
    expect(child.returncode == 143, f"status {child.returncode}")


def chat(*arguments):
    terminal = Terminal("chat", MODEL, "-n", "6", "--temp", "0", *arguments)
    terminal.wait_for("> ")
    return terminal


def test_chat_answers_and_leaves():
    terminal = chat()
    terminal.send("hello\r")
    terminal.wait_for("hello")
    terminal.wait_for("\n> ")
    terminal.send("/stats\r")
    terminal.wait_for("timings are printed")
    terminal.wait_for("> ")
    terminal.send("again\r")
    terminal.wait_for("t/s")
    terminal.wait_for("> ")
    terminal.send("/exit\r")
    expect(terminal.status() == 0, "status")


def test_chat_ends_at_end_of_input():
    terminal = chat()
    terminal.send("\x04")
    expect(terminal.status() == 0, "status")


def test_chat_commands_work():
    terminal = chat()
    for line, wanted in (("/help", "/regen"), ("/set temp 0.5", "temp 0.5"),
                         ("/set temp 1000", "error"), ("/system Be brief.", "system prompt set"),
                         ("/undo", "nothing has been said"), ("/nonsense", "no such command"),
                         ("/think on", "thinking is on"), ("/clear", "new conversation")):
        terminal.send(line + "\r")
        terminal.wait_for(wanted)
        terminal.wait_for("> ")
    terminal.send("/exit\r")
    expect(terminal.status() == 0, "status")


def test_chat_saves_and_loads():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "talk.json")
        terminal = chat()
        terminal.send('"""first line\rsecond line"""\r')
        terminal.wait_for('second line"""')
        terminal.wait_for("\n> ")
        terminal.send(f"/save {path}\r")
        terminal.wait_for("messages saved")
        talk = json.loads(pathlib.Path(path).read_text())["messages"]
        expect(talk[0] == {"role": "user", "content": "first line\nsecond line"}, str(talk))
        expect(talk[1]["role"] == "assistant", str(talk))
        terminal.wait_for("> ")
        if "jansson" in libraries():
            terminal.send(f"/load {path}\r")
            terminal.wait_for("2 messages loaded")
            terminal.wait_for("> ")
        terminal.send("/undo\r")
        terminal.wait_for("0 messages are left")
        terminal.send("\x04")
        expect(terminal.status() == 0, "status")


def test_a_single_turn_ends_as_its_answer_did():
    long = b"Tell me a story. " * 400 + b"\n"
    done = carat("chat", MODEL, "-c", "64", "-st", stdin=long)
    expect_status(done, 2)
    expect(b"exceeds" in done.stderr, str(done.stderr))
    expect_status(carat("chat", MODEL, "-n", "2", "-st", stdin=b"hello\n"), 0)


def test_a_conversation_of_run_sends_the_prompt_of_a_file():
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("hello")
        file.flush()
        flags = ["-n", "5", "--temp", "0", "-q"]
        done = carat("run", MODEL, "-cnv", "-f", file.name, "-st", *flags)
    expect_status(done, 0)
    expected = carat("run", MODEL, "hello", *flags).stdout.strip()
    expect(expected and done.stdout.strip() == expected, f"{done.stdout} {expected}")


def test_a_conversation_of_run_refuses_what_it_would_ignore():
    for flags in (["--raw"], ["--json"], ["-o", "out.txt"], ["--tools", "nosuch.json"],
                  ["--profile"], ["--show-thinking"]):
        expect_error(carat("run", MODEL, "-cnv", "-p", "hi", "-st", *flags), 2, "conversation")
    expect(not (ROOT / "out.txt").exists(), "a file was made")


def test_chat_takes_a_pasted_block_as_one_message():
    if "libedit" not in libraries():
        raise Skip("built without libedit")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "talk.json")
        terminal = chat()
        terminal.send("\x1b[200~one\ntwo\x1b[201~ three\r")
        terminal.wait_for("three")
        terminal.wait_for("\n> ")
        terminal.send(f"/save {path}\r")
        terminal.wait_for("messages saved")
        talk = json.loads(pathlib.Path(path).read_text())["messages"]
        expect(talk[0]["content"] == "one\ntwo three", str(talk))
        terminal.wait_for("> ")
        terminal.send("/exit\r")
        expect(terminal.status() == 0, "status")


def test_interrupt_in_chat_stops_only_the_answer():
    terminal = Terminal("chat", long_model(), "-c", "200000", "--logit-bias", "106=-inf",
                        "--logit-bias", "1=-inf", "--logit-bias", "50=-inf")
    terminal.wait_for("> ")
    terminal.send("hello\r")
    terminal.wait_for("hello")
    while not terminal.seen.strip():  # the answer: nothing else comes
        expect(terminal.read(LIMIT), "an answer")
    terminal.send("\x03")
    terminal.wait_for("stopped")
    terminal.wait_for("> ")
    terminal.send("\x03")
    terminal.wait_for("Ctrl-D or /exit leaves")
    terminal.wait_for("> ")
    terminal.send("\x03")
    expect(terminal.status() == 130, "status")


def test_chat_keeps_history_unless_told_not_to():
    if "libedit" not in libraries():
        raise Skip("built without libedit")
    for arguments, is_kept in (([], True), (["--no-history"], False)):
        for command in ("chat", "run"):
            terminal = Terminal(command, MODEL, "-n", "6", *arguments)
            terminal.wait_for("> ")
            terminal.send("/stats\r")
            terminal.wait_for("timings")
            terminal.wait_for("> ")
            terminal.send("\x04")
            expect(terminal.status() == 0, "status")
            path = pathlib.Path(terminal.folder.name) / "carat/history"
            expect(path.exists() == is_kept, f"{command} {arguments}: {path.exists()}")
            expect(not is_kept or "/stats" in path.read_text(), "content")


def test_chat_reads_lines_from_a_pipe():
    done = carat("chat", MODEL, "-n", "4", "--temp", "0", stdin=b"hello\n/stats\nagain\n")
    expect_status(done, 0)
    expect(b"> " not in done.stdout[:2] and done.stdout.count(b"\n") >= 2, str(done.stdout))


def test_progress_is_shown_on_a_terminal_and_leaves_no_trace():
    for more, quiet, is_shown in (({}, [], True), ({}, ["-q"], False), ({"CI": "1"}, [], False),
                                  ({"TERM": "dumb"}, [], False)):
        terminal = Terminal("run", MODEL, "hi", "-n", "2", *quiet, **{"CI": "", **more})
        expect(terminal.status() == 0, "status")
        shown = re.findall("\r\x1b\\[K([^\r]*)", terminal.raw)
        expect(any("..." in s for s in shown) == is_shown, f"{more} {quiet}: {shown}")
        expect(not is_shown or not shown[-1].endswith("..."), f"it stays: {shown}")


def test_run_without_prompt_on_a_terminal_is_a_chat():
    terminal = Terminal("run", MODEL, "-n", "3")
    terminal.wait_for("> ")
    terminal.send("\x04")
    expect(terminal.status() == 0, "status")


def test_answer_on_a_terminal_shows_no_control_characters():
    terminal = Terminal("detokenize", MODEL, "--special", "107", "2")
    expect(terminal.status() == 0, "status")
    expect("<bos>" in terminal.seen, repr(terminal.seen))


if __name__ == "__main__":
    program.main(globals())
