#!/usr/bin/env python3
"""pull, ls, rm and verify against a stand-in for the registries, and what goes wrong on the way.

usage: tests/e2e/test_pull.py PROGRAM [NAME...]      (only tests whose name contains a NAME)
"""
import contextlib
import hashlib
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import hub
import program
from hub_place import NAME, Place
from program import (FIXTURES, PROGRAM, Skip, Terminal, expect, expect_error, expect_status,
                     libraries, main, wait_until)


# ---- What is chosen --------------------------------------------------------------------------

def test_pull_loads_a_model_and_prints_its_path():
    with Place() as place:
        file = place.hub.add(NAME)
        done = place.pull("hf:u/r")
        expect_status(done, 0)
        expect(done.stdout.decode() == f"{place.path()}\n", done.stdout.decode())
        expect("100 %" in done.stderr.decode(), done.stderr.decode())
        place.expect_whole(file)
        record = json.loads(pathlib.Path(f"{place.path()}.json").read_text())
        expect(record["sha256"] == file.sha256 and record["size"] == file.size, str(record))
        expect(record["revision"] == hub.COMMIT and record["source"] == "hf:u/r", str(record))
        expect_status(place.pull("hf:u/r", "-q"), 0)
        expect(len(place.hub.asked("cdn")) == 1, "what is there is loaded again")


def test_quantisations_are_matched_in_any_case_and_helpers_never():
    with Place() as place:
        add = place.hub.add
        for i, name in enumerate(("m-Q4_K_M.gguf", "m-UD-Q4_K_M.gguf", "m-q8_0.gguf",
                                  "x/m-BF16.gguf", "mmproj-m-F16.gguf", "m-imatrix-Q5_0.gguf",
                                  "MTP/m-it-MTP-Q8_0.gguf", "README.Q6_K")):
            add(name, 5000, i)
        place.hub.page_size = 2
        for asked, name in (("hf:u/r", "m-Q4_K_M.gguf"), ("hf:u/r:ud-q4_k_m", "m-UD-Q4_K_M.gguf"),
                            ("hf:u/r:Q8_0", "m-q8_0.gguf"), ("hf.co/u/r:bf16", "x/m-BF16.gguf"),
                            ("hf:u/r/x/m-BF16.gguf", "x/m-BF16.gguf"),
                            ("hf:u/r/MTP/m-it-MTP-Q8_0.gguf", "MTP/m-it-MTP-Q8_0.gguf"),
                            ("https://huggingface.co/u/r/blob/main/m-q8_0.gguf", "m-q8_0.gguf")):
            done = place.pull(asked)
            expect_status(done, 0)
            expect(done.stdout.decode().strip() == str(place.path(name)), done.stdout.decode())
        expect_status(place.pull("hf:u/r", "--quant", "q8_0"), 0)
        for asked in ("hf:u/r:Q5_0", "hf:u/r:F16", "hf:u/r:Q6_K", "hf:u/r/nosuch.gguf"):
            done = place.pull(asked)
            expect_status(done, 2)
            text = done.stderr.decode()
            for shown in ("hf:u/r:Q4_K_M", "hf:u/r:UD-Q4_K_M", "hf:u/r:Q8_0", "hf:u/r:BF16"):
                expect(shown in text, f"{shown} is not listed: {text}")
            expect("mmproj" not in text and "imatrix" not in text, text)


def test_a_repository_without_the_default_lists_what_it_has():
    with Place() as place:
        place.hub.add("only-Q8_0.gguf")
        done = place.pull("hf:u/r")
        expect_status(done, 2)
        expect(b"hf:u/r:Q8_0" in done.stderr and b"none is Q4_K_M" in done.stderr, str(done))
        expect(not hub.tree_of(place.home), "something was loaded")


def test_models_of_one_quantisation_are_named_by_their_files():
    with Place() as place:
        for i, name in enumerate(("a-Q8_0.gguf", "b-Q8_0.gguf", "c-F16.gguf")):
            place.hub.add(name, 5000, i)
        done = place.pull("hf:u/r:Q8_0")
        expect_status(done, 2)
        shown = [line.split()[0] for line in done.stderr.decode().splitlines()[:3]]
        expect(shown == ["hf:u/r/a-Q8_0.gguf", "hf:u/r/b-Q8_0.gguf", "hf:u/r:F16"], str(shown))
        expect("2 models fit Q8_0" in done.stderr.decode(), done.stderr.decode())
        for name in shown:
            expect_status(place.pull(name), 0)
            expect_status(place.run("verify", name), 0)
        listed = {row["name"] for row in json.loads(place.run("ls", "--json").stdout)}
        expect(set(shown) <= listed, str(listed))


def test_all_parts_of_a_split_model_are_loaded():
    with Place() as place:
        names = [f"m-Q4_K_M-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
        files = [place.hub.add(name, 100_000 + i, i) for i, name in enumerate(names)]
        place.hub.cuts = [10 ** 9, 50_000]  # the second one breaks off
        done = place.pull("hf:u/r", "--retries", "0")
        expect_status(done, 6)
        expect(place.path(names[0]).exists() and not place.path(names[1]).exists(), "parts")
        done = place.run("show", "hf:u/r")
        expect_error(done, 3, "is not on this machine", "carat pull hf:u/r")
        expect_status(place.pull("hf:u/r"), 0)
        for name, file in zip(names, files):
            place.expect_whole(file, place.path(name))
        done = place.run("rm", "--yes", "hf:u/r")
        expect_status(done, 0)
        expect(not hub.tree_of(place.store), str(hub.tree_of(place.store)))
        place.hub.files.pop(names[2])
        done = place.pull("hf:u/r")
        expect_error(done, 2, "there is no GGUF model")


def test_names_that_are_none_are_refused():
    with Place() as place:
        for name in ("hf:u", "hf:/r", "hf:u/..", "hf:u/r:", "hf:u/r/../x.gguf", "hf:u/r/x.bin",
                     "hf:u/r\n:Q4", "u/r", "./x.gguf", "ollama:", "ollama:a/b/c", "ollama:x:..",
                     "https://u:p@h/x.gguf", "https://h/", "https://h/x", "ftp://h/x.gguf", ""):
            done = place.pull(name)
            expect_error(done, 2)
            expect("hint" in done.stderr.decode() or "expected" in done.stderr.decode(), name)
        expect_error(place.pull("hf:u/r", "--revision", "../x"), 2, "--revision")
        expect_error(place.pull(), 2, "NAME is missing")
        expect(not place.hub.requests, "something was asked")
        expect_error(place.pull("http://example.invalid/x.gguf"), 2, "not https")
        expect_error(place.pull("hf:u/r", "--endpoint", "http://example.invalid"), 2, "--endpoint")


def test_a_name_without_a_quantisation_means_the_default_one_first():
    with Place() as place:
        place.hub.add("m-Q8_0.gguf", 5000)
        place.hub.add(NAME, 5000, 2)
        for n, tag in enumerate(("Q8_0", "Q4_K_M", "Q8_0")):
            place.hub.commit = f"{n}" * 40  # its file is new there
            place.hub.add("m-Q8_0.gguf", 5000, 10 + n)
            expect_status(place.pull(f"hf:u/r:{tag}"), 0)
            done = place.run("verify", "hf:u/r")
            expect_status(done, 0)
            wanted = "Q8_0" if n == 0 else "Q4_K_M"
            expect(wanted in done.stdout.decode(), f"{n}: {done.stdout.decode()}")
        expect_status(place.run("rm", "--yes", "hf:u/r"), 0)
        expect_error(place.run("rm", "--yes", "hf:u/r"), 3, "no model of this name")


# ---- Interruptions ---------------------------------------------------------------------------

def test_a_download_killed_at_99_percent_goes_on():
    with Place() as place:
        file = place.hub.add(NAME, 1_000_000)
        place.kill_at(990_000)
        done = place.pull("hf:u/r")
        expect_status(done, 0)
        expect("going on with" in done.stderr.decode(), done.stderr.decode())
        place.expect_whole(file)
        headers = place.hub.asked("cdn")[-1][1]
        expect(headers["Range"] == "bytes=990000-", str(headers))
        expect(headers["If-Range"] == file.etag, str(headers))


def test_a_changed_etag_starts_over():
    for fault in ("", "ignores If-Range"):
        with Place() as place:
            file = place.hub.add(NAME, 1_000_000)
            place.kill_at(990_000)
            file.etag, place.hub.fault = '"second"', fault
            done = place.pull("hf:u/r")
            expect_status(done, 0)
            expect("changed on the server" in done.stderr.decode(), done.stderr.decode())
            place.expect_whole(file)


def test_other_contents_of_the_same_size_start_over():
    """At an address without a checksum the ETag alone tells."""
    for fault in ("", "ignores If-Range"):
        with Place() as place:
            file = place.hub.add(NAME, 1_000_000)
            url = f"{place.hub.endpoint}/files/{NAME}"
            place.hub.cuts = [600_000]
            expect_status(place.pull(url, "--retries", "0"), 6)
            file.data, file.etag = hub.model_bytes(1_000_000, 9), '"second"'
            place.hub.fault = fault
            expect_status(place.pull(url), 0)
            found = [p for n, p in hub.tree_of(place.store).items() if n.endswith(".gguf")]
            place.expect_whole(file, found[0])


def test_a_new_commit_gets_its_own_folder_and_the_old_file_stays():
    with Place() as place:
        old = place.hub.add(NAME)
        expect_status(place.pull("hf:u/r"), 0)
        place.hub.commit = "f" * 40  # another file has changed
        expect_status(place.pull("hf:u/r"), 0)
        expect(len(place.hub.asked("cdn")) == 1, "the same file is loaded again")
        new = place.hub.add(NAME, 300_000, 7)
        expect_status(place.pull("hf:u/r"), 0)
        place.expect_whole(old)
        place.expect_whole(new, place.path(version="f" * 12))
        done = place.run("verify", "hf:u/r")
        expect(new.sha256.encode() in done.stdout, "the newest is what the name means")


def test_connections_that_break_are_tried_again():
    with Place() as place:
        file = place.hub.add(NAME, 3_000_000)
        place.hub.cuts = [100, 1_100_000, 5, 1_500_000]
        done = place.pull("hf:u/r", "--retries", "2")
        expect_status(done, 0)
        expect(done.stderr.decode().count("trying again") == 4, done.stderr.decode())
        place.expect_whole(file)
        ranges = [h.get("Range") for _, h in place.hub.asked("cdn")]
        expect(ranges == [None, "bytes=100-", "bytes=1100100-", "bytes=1100105-",
                          "bytes=2600105-"], str(ranges))


def test_servers_that_are_busy_are_asked_again_and_then_reported():
    with Place() as place:
        file = place.hub.add(NAME)
        tries = []
        place.hub.overrides = [("revision", lambda h: (tries.append(1), h.answer(503))
                                if len(tries) < 2 else h.answer_json({"sha": hub.COMMIT}))]
        expect_status(place.pull("hf:u/r"), 0)
        place.expect_whole(file)
        place.hub.overrides = [("revision", lambda h: h.answer(500))]
        expect_status(place.pull("hf:u/r", "--retries", "1"), 6)
        done = place.pull("hf:u/r", "--retries", "0")
        expect_error(done, 6, "500", "/api/models/u/r/revision/main")


def test_a_server_that_cannot_be_reached_is_explained():
    with Place() as place:
        done = place.run("pull", "hf:u/r", "--retries", "0", "--endpoint", "http://127.0.0.1:9")
        expect_error(done, 6, "127.0.0.1:9", "hint: is there a network?", "HTTPS_PROXY")


def test_a_stalled_connection_is_given_up():
    with Place() as place:
        place.hub.add(NAME)
        place.hub.cuts, place.hub.fault = [100_000], "stalls"
        done = place.pull("hf:u/r", "--retries", "0", "--timeout", "3")
        expect_status(done, 6)
        expect(place.part().stat().st_size == 100_000, "the part is lost")


def test_ctrl_c_keeps_the_part_and_says_how_to_go_on():
    with Place() as place:
        file = place.hub.add(NAME)
        place.hub.cuts, place.hub.fault = [200_000], "stalls"
        process = place.start("pull", "hf:u/r")
        place.wait_for_part(200_000)
        done = place.run("rm", "--yes", "hf:u/r")
        expect_error(done, 1, f"process {process.pid} is downloading it")
        process.send_signal(signal.SIGINT)
        text = process.communicate(timeout=program.LIMIT)[1].decode()
        expect(process.returncode == 130, f"{process.returncode}: {text}")
        expect("carat pull hf:u/r" in text and "error" not in text, text)
        place.hub.fault = ""
        expect_status(place.pull("hf:u/r"), 0)
        place.expect_whole(file)


def test_killed_at_random_moments_no_wrong_file_ever_has_the_name():
    rng = random.Random(14)
    with Place() as place:
        file = place.hub.add(NAME, 1_000_000)
        place.hub.pause = 0.002
        for _ in range(20):
            process = place.start("pull", "hf:u/r", "-q")
            time.sleep(rng.uniform(0.005, 0.08))
            process.kill()
            process.communicate()
            if place.path().exists():
                expect(place.path().read_bytes() == file.data, "a wrong file has the name")
                shutil.rmtree(place.store)
        place.hub.pause = 0
        expect_status(place.pull("hf:u/r"), 0)
        place.expect_whole(file)


def test_a_part_that_is_removed_meanwhile_leaves_no_file():
    with Place() as place:
        file = place.hub.add(NAME, 1_000_000)
        place.hub.fault = "waits"
        process = place.start("pull", "hf:u/r", "-q")
        place.wait_for_part(200_000)
        place.part().rename(place.home / "moved")
        place.part().write_bytes(b"GGUF, but of somebody else")
        place.hub.may_go_on.set()
        text = process.communicate(timeout=program.LIMIT)[1].decode()
        expect(process.returncode == 1 and "was removed" in text, text)
        expect(not place.path().exists(), "somebody else's part has the name")
        place.hub.fault = ""
        expect_status(place.pull("hf:u/r"), 8)  # the part had other bytes at its beginning
        expect_status(place.pull("hf:u/r"), 0)
        place.expect_whole(file)


def test_two_at_once_load_once():
    with Place() as place:
        file = place.hub.add(NAME)
        place.hub.cuts, place.hub.fault = [100_000], "stalls"
        first = place.start("pull", "hf:u/r", "--timeout", "600")
        place.wait_for_part(100_000)
        second = place.start("pull", "hf:u/r")
        watchdog = threading.Timer(program.LIMIT, second.kill)
        watchdog.start()
        words, said = f"process {first.pid} is downloading the same file", ""
        for line in second.stderr:
            said += line.decode()
            if words in said:
                break
        watchdog.cancel()
        expect(words in said, said)
        place.hub.fault = ""
        place.hub.may_go_on.set()
        texts = [p.communicate(timeout=program.LIMIT)[1].decode() for p in (second, first)]
        expect(first.returncode == 0 and second.returncode == 0, str(texts))
        place.expect_whole(file)
        expect(len(place.hub.asked("cdn")) == 2, "the first one's two requests are all")


# ---- Disks -----------------------------------------------------------------------------------

def test_too_little_room_is_said_first():
    with Place() as place:
        place.hub.add("m-Q4_K_M-00001-of-00002.gguf", 1000, claims=1 << 49)
        place.hub.add("m-Q4_K_M-00002-of-00002.gguf", 1000, 2, claims=1 << 49)
        done = place.pull("hf:u/r", "-q")
        expect_error(done, 1, "free", str(1 << 50), "needed", "--dir")
        expect(not place.hub.asked("cdn"), "a file was asked for")


def test_a_limit_on_file_sizes_keeps_the_part():
    with Place() as place:
        file = place.hub.add(NAME)

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (131072, 131072))
        done = place.pull("hf:u/r", "-q", preexec_fn=limit)
        expect_error(done, 1, "cannot be written", "ulimit")
        expect(place.part().stat().st_size == 131072, "the part")
        expect_status(place.pull("hf:u/r"), 0)
        place.expect_whole(file)


@contextlib.contextmanager
def small_disk(size):
    with tempfile.TemporaryDirectory() as folder:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
        try:
            done = subprocess.run(command, capture_output=True)
        except OSError as error:
            raise Skip(f"no mount here: {error}") from error
        if done.returncode != 0:
            raise Skip(f"a small disk may not be mounted: {done.stderr.decode().strip()}")
        try:
            yield pathlib.Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


def test_a_disk_that_is_read_only_is_said():
    with Place() as place, small_disk(1 << 20) as disk:
        place.hub.add(NAME)
        place.hub.add("m-Q8_0.gguf", 5000)
        expect_status(place.pull("hf:u/r", "--dir", disk), 0)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        for flags in ([], ["--verify"]):
            expect_status(place.pull("hf:u/r", "--dir", disk, *flags), 0)
        done = place.pull("hf:u/r:Q8_0", "--dir", disk)
        expect_error(done, 1, "Read-only file system", str(disk))
        expect_error(place.run("rm", "-y", "hf:u/r", "--dir", disk), 1, "Read-only file system")


def test_a_full_disk_keeps_the_part():
    with Place() as place, small_disk(1 << 20) as disk:
        file = place.hub.add(NAME, 900_000)
        place.hub.cuts, place.hub.fault = [100_000], "stalls"
        process = place.start("pull", "hf:u/r", "--dir", str(disk), "--timeout", "600")
        wait_until(lambda: any(n.endswith(".part") for n in hub.tree_of(disk)), "a part")
        (disk / "other").write_bytes(bytes(500_000))  # it was free when it was looked at
        place.hub.fault = ""
        place.hub.may_go_on.set()
        text = process.communicate(timeout=program.LIMIT)[1].decode()
        expect(process.returncode == 1 and "No space left" in text, text)
        (disk / "other").unlink()
        done = place.pull("hf:u/r", "--dir", disk)
        expect_status(done, 0)
        expect("going on with" in done.stderr.decode(), done.stderr.decode())
        expect(pathlib.Path(done.stdout.decode().strip()).read_bytes() == file.data, "bytes")


# ---- Other registries, other stores ----------------------------------------------------------

def test_models_of_ollamas_registry_are_loaded():
    with Place() as place:
        file = place.hub.add("ollama-e2b")
        link = place.home / "ollama"
        link.symlink_to(PROGRAM)
        done = subprocess.run([link, "pull", "gemma4:e2b", "--endpoint", place.hub.endpoint],
                              env=place.env(), cwd=place.home, capture_output=True)
        expect_status(done, 0)
        place.expect_whole(file, done.stdout.decode().strip())
        for name in ("gemma4:e2b", "ollama:gemma4:e2b"):
            expect_error(place.run("show", name), 3, "gemma4-e2b.gguf: header")
        expect_error(place.run("show", "gemma4:e4b"), 3, "gemma4:e4b", "carat pull")
        done = place.pull("ollama:gemma4:e4b", "--endpoint", place.hub.endpoint, "-q")
        expect_error(done, 6, "404")
        done = subprocess.run([link, "rm", "gemma4:e2b", "-y"], env=place.env(), cwd=place.home,
                              capture_output=True)
        expect_status(done, 0)
        expect(not hub.tree_of(place.store), "rm")


def hf_cache(folder, data, commit=hub.COMMIT):
    """A file in Hugging Face's cache, as its own programs leave it there."""
    sha = hashlib.sha256(data).hexdigest()
    base = pathlib.Path(folder) / "models--u--r"
    for part in ("blobs", "refs", f"snapshots/{commit}"):
        (base / part).mkdir(parents=True, exist_ok=True)
    (base / "blobs" / sha).write_bytes(data)
    (base / "refs/main").write_text(commit)
    path = base / "snapshots" / commit / "gemma-tiny-Q8_0.gguf"
    path.symlink_to(f"../../blobs/{sha}")
    return path


def test_files_in_hugging_faces_cache_are_found_and_only_read():
    model = (FIXTURES / "e2b-q8_0.gguf").read_bytes()
    with Place() as place:
        path = hf_cache(place.home / ".cache/huggingface/hub", model)
        for name in ("hf:u/r:Q8_0", "hf:u/r", "hf.co/u/r:q8_0", "hf:u/r/gemma-tiny-Q8_0.gguf"):
            expect_status(place.run("show", name), 0)
        for flags in (["-hf", "u/r:Q8_0"], ["--hf-repo", "u/r", "-hff", "gemma-tiny-Q8_0.gguf"]):
            expect_status(place.run("tokenize", *flags, "Hello"), 0)
        rows = json.loads(place.run("ls", "--json").stdout)
        row = [r for r in rows if r["name"] == "hf:u/r:Q8_0"][0]
        expect(row["sha256"] == hashlib.sha256(model).hexdigest(), str(row))
        expect(row["path"] == str(path) and not row["broken"], str(row))
        expect_error(place.run("rm", "--yes", "hf:u/r:Q8_0"), 2, "pull did not make")
        done = place.run("verify", "hf:u/r:Q8_0")
        expect_status(done, 0)
        expect(done.stdout.startswith(b"ok "), str(done.stdout))
        place.hub.files["gemma-tiny-Q8_0.gguf"] = hub.File(model)
        done = place.pull("hf:u/r:Q8_0")
        expect_status(done, 0)
        expect(done.stdout.decode().strip() == str(path), "it is loaded again")
        for variable, folder in (("HF_HOME", "one/hub"), ("HF_HUB_CACHE", "two")):
            hf_cache(place.home / folder, model)
            value = str(place.home / folder.removesuffix("/hub"))
            shutil.rmtree(place.home / ".cache", ignore_errors=True)
            expect_status(place.run("show", "hf:u/r:Q8_0", env={variable: value}), 0)
        expect_error(place.run("show", "hf:u/r:Q8_0"), 3, "is not on this machine")


def served_name(place, name):
    """What `carat serve` calls a model."""
    process = place.start("serve", name, "--port", "0")
    for line in process.stderr:
        words = line.decode().split()
        if "answers" in words:
            break
    process.terminate()
    process.communicate(timeout=program.LIMIT)
    return words[words.index("answers") - 1]


def ollama_store(base, data):
    """A model in ollama's store; returns its blob."""
    sha = hashlib.sha256(data).hexdigest()
    manifest = base / "manifests/registry.ollama.ai/library/gemma4/e2b"
    manifest.parent.mkdir(parents=True)
    (base / "blobs").mkdir()
    (base / f"blobs/sha256-{sha}").write_bytes(data)
    manifest.write_text(json.dumps({"layers": [
        {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{sha}",
         "size": len(data)}]}))
    return base / f"blobs/sha256-{sha}"


def test_models_in_ollamas_store_are_found():
    model = (FIXTURES / "e2b-q8_0.gguf").read_bytes()
    sha = hashlib.sha256(model).hexdigest()
    with Place() as place:
        base = place.home / ".ollama/models"
        ollama_store(base, model)
        for name in ("gemma4:e2b", "ollama:gemma4:e2b"):
            expect_status(place.run("show", name), 0)
        rows = json.loads(place.run("ls", "--json").stdout)
        expect(any(r["name"] == "ollama:gemma4:e2b" and r["sha256"] == sha for r in rows), "ls")
        expect_status(place.run("verify", "gemma4:e2b"), 0)
        if "libmicrohttpd" in libraries():
            expect(served_name(place, "ollama:gemma4:e2b") == "gemma4:e2b", "name in the server")
            expect(served_name(place, "gemma4:e2b") == "gemma4:e2b", "name in the server")
        (base / f"blobs/sha256-{sha}").write_bytes(model[:-5])
        expect_error(place.run("show", "gemma4:e2b"), 3, "no such model")


def test_a_model_runs_by_its_name():
    with Place() as place:
        data = (FIXTURES / "e2b-q8_0.gguf").read_bytes()
        place.hub.files["tiny-Q8_0.gguf"] = hub.File(data)
        expect_status(place.pull("hf:u/r:Q8_0"), 0)
        by_path = place.run("run", place.path("tiny-Q8_0.gguf"), "hi", "-n", "4", "--seed", "1")
        for flags in (["hf:u/r:Q8_0"], ["-m", "hf:u/r:Q8_0"], ["-hf", "u/r:Q8_0"], ["hf:u/r"]):
            done = place.run("run", *flags, "hi", "-n", "4", "--seed", "1", "--offline")
            expect_status(done, 0)
            expect(done.stdout == by_path.stdout, str(flags))
        done = place.run("bench", "-hf", "u/r:Q8_0", "-p", "4", "-n", "0", "-r", "1", "-q")
        expect_status(done, 0)
        expect(b"pp4" in done.stdout, str(done.stdout))
        done = place.run("run", "hi", "-n", "2", env={"CARAT_MODEL": "hf:u/r:Q8_0"})
        expect_status(done, 0)


def test_a_model_in_another_folder_is_not_loaded_again():
    with Place() as place:
        place.hub.add(NAME)
        other = place.home / "other"
        expect_status(place.pull("hf:u/r", "--dir", other), 0)
        done = place.pull("hf:u/r", env={"CARAT_MODELS": str(other)})
        expect_status(done, 0)
        expect(done.stdout.decode().startswith(f"{other}/hf/u/r/"), done.stdout.decode())
        expect(len(place.hub.asked("cdn")) == 1, "it is loaded again")
        place.hub.add(NAME, 300_000, 2)
        place.hub.commit = "f" * 40
        expect_status(place.pull("hf:u/r", env={"CARAT_MODELS": str(other)}), 0)
        place.expect_whole(place.hub.files[NAME], place.path(version="f" * 12))


# ---- Asking ----------------------------------------------------------------------------------

def terminal(place, *arguments):
    env = {k: v for k, v in place.env().items() if k not in os.environ or os.environ[k] != v}
    return Terminal(*arguments, **{**env, "XDG_DATA_HOME": str(place.home / ".local/share")})


def test_a_missing_model_and_a_drafter_are_offered_on_a_terminal():
    with Place() as place:
        place.hub.files["tiny-Q8_0.gguf"] = hub.File((FIXTURES / "e2b-q8_0.gguf").read_bytes())
        screen = terminal(place, "run", "hf:u/r:Q8_0", "hi", "-n", "2")
        screen.wait_for("Download it?")
        question = screen.wait_for("(y/N)")
        expect("MiB" in question and "free" in question, question)
        screen.send("n\r")
        expect(screen.status() == 3, "status")
        expect("carat pull hf:u/r:Q8_0" in screen.seen, screen.seen)
        expect(not place.hub.asked("cdn"), "it was loaded")
        screen = terminal(place, "run", "hf:u/r:Q8_0", "hi", "-n", "2")
        screen.wait_for("(y/N)")
        screen.send("y\r")
        expect(screen.status() == 0, screen.seen)
        expect(place.path("tiny-Q8_0.gguf").exists(), "it is not there")
        auto = ("run", "hf:u/r:Q8_0", "hi", "-n", "2", "-md", "auto")
        screen = terminal(place, *auto)
        screen.wait_for("no drafter: ")
        screen.wait_for("there is no drafter")
        expect(screen.status() == 0, screen.seen)
        drafter = (FIXTURES / "e2b-q8_0.draft.gguf").read_bytes()
        place.hub.files["mtp-tiny.gguf"] = hub.File(drafter)
        screen = terminal(place, *auto)
        screen.wait_for("hf:u/r:MTP is not on this machine. Download it?")
        screen.send("n\r")
        screen.wait_for("no drafter: ")
        expect(screen.status() == 0, screen.seen)
        screen = terminal(place, *auto)
        screen.wait_for("(y/N)")
        screen.send("y\r")
        screen.wait_for("drafter: ")
        expect(screen.status() == 0, screen.seen)
        screen = terminal(place, "show", "hf:u/other")
        screen.wait_for("hf:u/other:Q8_0")
        expect(screen.status() == 2, screen.seen)
        screen = terminal(place, "show", "hf:u/other", "--offline")
        expect(screen.status() == 3, screen.seen)
        expect("Download" not in screen.seen, screen.seen)


def test_without_a_terminal_the_command_to_type_is_named():
    with Place() as place:
        for arguments in (["run", "hf:u/r", "hi"], ["show", "-hf", "u/r"], ["bench", "hf:u/r"]):
            expect_error(place.run(*arguments), 3, "is not on this machine", "carat pull hf:u/r")
        expect(not place.hub.requests, "something was asked")


def test_offline_asks_nothing():
    with Place() as place:
        place.hub.add(NAME)
        for flags, env in ((["--offline"], {}), ([], {"HF_HUB_OFFLINE": "1"})):
            expect_error(place.pull("hf:u/r", *flags, env=env), 6, "--offline")
        expect(not place.hub.requests, "something was asked")
        expect_status(place.pull("hf:u/r"), 0)
        n = len(place.hub.requests)
        done = place.pull("hf:u/r", "--offline")
        expect_status(done, 0)
        expect(done.stdout.decode().strip() == str(place.path()), "path")
        expect(len(place.hub.requests) == n, "something was asked")


def test_a_bar_is_shown_on_a_terminal():
    with Place() as place:
        place.hub.add(NAME, 2_000_000)
        place.hub.pause = 0.01
        screen = terminal(place, "pull", "hf:u/r")
        screen.wait_for("loading gemma")
        expect(screen.status() == 0, screen.seen)
        screen = Terminal("pull", "hf:u/r", "--dir", str(place.home / "other"),
                          **{**place.env(), "CI": "", "TERM": "xterm"})
        screen.wait_for("MB/s")
        expect(screen.status() == 0, screen.seen)
        expect("[####" in screen.raw and " %, " in screen.raw, screen.raw[-300:])


def test_rm_asks_and_removes_what_pull_made_alone():
    with Place() as place:
        place.hub.add(NAME)
        place.hub.add("x-Q8_0.gguf", 5000, 2)
        expect_status(place.pull("hf:u/r"), 0)
        expect_status(place.pull("hf:u/r:Q8_0"), 0)
        expect_error(place.run("rm", "hf:u/r"), 2, "carat rm --yes hf:u/r")
        screen = terminal(place, "rm", "hf:u/r")
        screen.wait_for("(y/N)")
        screen.send("\r")
        expect(screen.status() == 0 and place.path().exists(), "it was removed")
        screen = terminal(place, "rm", "hf:u/r")
        screen.wait_for("(y/N)")
        screen.send("y\r")
        expect(screen.status() == 0 and not place.path().exists(), "it was not removed")
        expect(place.path("x-Q8_0.gguf").exists(), "the other one was removed")
        own = place.store / "hf/u/r/mine/own-Q5_0.gguf"
        own.parent.mkdir()
        own.write_bytes(b"GGUF")
        expect_error(place.run("rm", "-y", "hf:u/r:Q5_0"), 2, "pull did not make")
        expect_error(place.run("rm", "-y", "hf:u/r:Q6_K"), 3, "no model of this name")
        place.kill_at(200_000)
        expect_status(place.run("rm", "-y", "hf:u/r"), 0)
        expect(not place.part().exists(), "the part is still there")
        expect_status(place.run("rm", "-y", "hf:u/r:Q8_0"), 0)
        expect(set(hub.tree_of(place.store)) == {"hf/u/r/mine/own-Q5_0.gguf"}, "rest")


def test_verify_finds_a_changed_file_and_pull_loads_it_again():
    with Place() as place:
        file = place.hub.add(NAME)
        expect_status(place.pull("hf:u/r"), 0)
        expect_status(place.run("verify"), 0)
        data = bytearray(file.data)
        data[1000] ^= 1
        place.path().write_bytes(data)
        for arguments in ([], ["hf:u/r"]):
            done = place.run("verify", *arguments)
            expect_status(done, 8)
            lines = [line for line in done.stdout.splitlines() if line.startswith(b"WRONG ")]
            expect(len(lines) == 1 and str(place.path()).encode() in lines[0], str(done.stdout))
        rows = json.loads(place.run("verify", "--json").stdout)
        row = [row for row in rows if row["path"] == str(place.path())][0]
        expect(row["result"] == "WRONG" and row["expected"] == file.sha256, str(row))
        expect_status(place.pull("hf:u/r"), 0)
        expect(place.path().read_bytes() == data, "it was replaced without being asked for")
        expect_status(place.pull("hf:u/r", "--verify"), 0)
        place.expect_whole(file)
        expect(pathlib.Path(f"{place.path()}.bad").read_bytes() == data, ".bad")
        expect_error(place.run("verify", "hf:u/x"), 3, "is not on this machine")


def results(place, *flags):
    """What `verify` says of each file, by the file's name, and its exit status."""
    done = place.run("verify", "--json", *flags)
    rows = json.loads(done.stdout)
    plain = place.run("verify", *flags)
    expect(plain.returncode == done.returncode, plain.stderr.decode())
    lines = [line.split()[0] for line in plain.stdout.decode().splitlines()]
    expect(lines == [row["result"] for row in rows], f"{lines} {rows}")
    for row in rows:
        is_read = row["result"] in ("ok", "WRONG")
        expect((row["sha256"] is not None) == is_read, str(row))
        expect(not is_read or row["expected"] is not None, str(row))
    return {pathlib.Path(row["path"]).name: row["result"] for row in rows
            if pathlib.Path(row["path"]).name != "demo.gguf"}, done.returncode


def test_verify_reads_all_that_ls_lists():
    model = (FIXTURES / "e2b-q8_0.gguf").read_bytes()
    sha = hashlib.sha256(model).hexdigest()
    with Place() as place:
        place.hub.add("s-Q6_K-00001-of-00002.gguf", 5000, 3)
        place.hub.add("s-Q6_K-00002-of-00002.gguf", 5000, 4)
        expect_status(place.pull("hf:u/r:Q6_K"), 0)
        cached = hf_cache(place.home / ".cache/huggingface/hub", model)
        blob = ollama_store(place.home / ".ollama/models", model)
        (place.home / "models").mkdir()
        (place.home / "models/plain.gguf").write_bytes(model)
        place.hub.add(NAME)
        place.kill_at(200_000)
        found, status = results(place)
        parts = {f"s-Q6_K-0000{i}-of-00002.gguf": "ok" for i in (1, 2)}
        expect(status == 0 and found == {**parts, cached.name: "ok", blob.name: "ok",
                                         "plain.gguf": "unknown", f"{NAME}.part": "unfinished"},
               f"{status} {found}")
        expect(blob.name == f"sha256-{sha}", blob.name)
        blob.write_bytes(model[:-1] + b"x")
        found, status = results(place)
        expect(status == 8 and found[blob.name] == "WRONG" and found[cached.name] == "ok",
               f"{status} {found}")
        blob.write_bytes(model)
        place.path("s-Q6_K-00002-of-00002.gguf").unlink()
        cached.resolve().write_bytes(b"x" + model[1:])
        found, status = results(place)
        expect(status == 8 and found[cached.name] == "WRONG" and found[blob.name] == "ok",
               f"{status} {found}")
        cached.resolve().write_bytes(model)
        (place.home / "models/s-00001-of-00002.gguf").write_bytes(model)
        found, status = results(place)
        expect(status == 1 and found["s-00002-of-00002.gguf"] == "missing", f"{status} {found}")
        done = place.run("verify", "plain")
        expect_status(done, 0)
        expect(done.stdout.decode().split()[:2] == ["unknown", sha], done.stdout.decode())


def test_a_file_that_cannot_be_read_does_not_keep_verify_from_the_others():
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        raise Skip("root can read all files, and setpriv is not here")
    with Place() as place:
        for n, name in enumerate(("a-Q4_0.gguf", "b-Q5_0.gguf")):
            place.hub.add(name, 5000, n)
        for tag in ("Q4_0", "Q5_0"):
            expect_status(place.pull(f"hf:u/r:{tag}"), 0)
        place.path("a-Q4_0.gguf").chmod(0)
        for folder in (place.home, *place.home.rglob("*")):
            if folder.is_dir():
                folder.chmod(0o755)
        drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        done = subprocess.run([*(drop if os.geteuid() == 0 else []), PROGRAM, "verify", "--dir",
                               place.store, "--json"], env=place.env(), capture_output=True)
        if done.returncode in (126, 127):
            raise Skip(f"another user cannot run the program: {done.stderr.decode()}")
        found = {pathlib.Path(row["path"]).name: row["result"] for row in json.loads(done.stdout)}
        expect(found == {"a-Q4_0.gguf": "unreadable", "b-Q5_0.gguf": "ok"}, str(found))
        expect(done.returncode == 1 and b"cannot be read" in done.stderr, done.stderr.decode())


def test_ls_lists_what_was_loaded():
    with Place() as place:
        data = (FIXTURES / "e2b-q8_0.gguf").read_bytes()
        place.hub.files["tiny-Q8_0.gguf"] = hub.File(data)
        expect_status(place.pull("hf:u/r:Q8_0", "--dir", place.home / "dir"), 0)
        done = place.run("ls", "--dir", place.home / "dir")
        expect_status(done, 0)
        line = done.stdout.decode().splitlines()[1]
        expect(line.startswith("hf:u/r:Q8_0 "), line)
        for word in (hashlib.sha256(data).hexdigest()[:12], "Q8_0", "MiB", time.strftime("%Y")):
            expect(word in line, line)
        expect(len(done.stdout.splitlines()) == 2, done.stdout.decode())
        place.hub.add(NAME)
        place.kill_at(200_000)
        done = place.run("ls")
        expect(b"unfinished: 0.2 MiB of 0.3 MiB; `carat pull hf:u/r` goes on" in done.stdout,
               done.stdout.decode())
        row = [r for r in json.loads(place.run("ls", "--json").stdout) if r["name"] == "hf:u/r"][0]
        expect(row["broken"] and "unfinished" in row["problem"], str(row))
        expect_status(place.run("show", "hf:u/r:Q8_0",
                                env={"CARAT_MODELS": str(place.home / "dir")}), 0)


def test_progress_never_takes_more_than_one_row():
    with Place() as place:
        name = f"{'long-' * 12}Q4_K_M.gguf"
        place.hub.add(name, 3_000_000)
        for columns in (100, 80, 40, 21):
            screen = Terminal("pull", "hf:u/r", "--dir", str(place.home / f"{columns}"),
                              size=(24, columns), **{**place.env(), "CI": "", "TERM": "xterm"})
            expect(screen.status() == 0, repr(screen.raw[-300:]))
            rows = re.findall("\r\x1b\\[K(loading[^\r\n]*)", screen.raw)
            expect(rows and max(map(len, rows)) < columns, f"{columns}: {rows}")


if __name__ == "__main__":
    main(globals())
