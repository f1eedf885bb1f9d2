#!/usr/bin/env python3
"""Limits of processes and containers: carat refuses with numbers before the kernel kills it.

usage: test_limits.py PROGRAM [NAME ...]
"""
import json
import os
import pathlib
import re
import resource
import tempfile

import program
from program import (DEMO, MODEL, Skip, carat, environment, expect, expect_error, expect_status,
                     is_sanitized)

LARGE_CHUNK = ("bench", MODEL, "--chunk", "4000", "-p", "4000", "-n", "0", "-r", "1", "-q")
GROUPS = pathlib.Path("/sys/fs/cgroup")


def need_small_program():
    if is_sanitized():
        raise Skip("sanitizers take terabytes of address space")


def limited(megabytes, *arguments, kind=resource.RLIMIT_AS):
    """With two threads: each takes address space for its stack."""
    limit = megabytes * 1000000
    return carat(*arguments, env=environment(CARAT_THREADS="2"),
                 preexec_fn=lambda: resource.setrlimit(kind, (limit, limit)))


class Group:
    """A memory or cpu group of either version; `files` are written in it."""

    def __init__(self, controller, files):
        for parent, version in ((GROUPS / controller, 0), (GROUPS, 1)):
            name = tuple(files)[0].split("|")[version]
            try:
                self.folder = pathlib.Path(tempfile.mkdtemp(prefix="carat-test-", dir=parent))
            except OSError:
                continue
            if (self.folder / name).exists():
                for names, values in files.items():
                    (self.folder / names.split("|")[version]).write_text(values[version])
                return
            self.folder.rmdir()
        raise Skip(f"no cgroup of {controller} can be made here")

    def run(self, *arguments):
        enter = str(self.folder / "cgroup.procs")
        return carat(*arguments, preexec_fn=lambda: open(enter, "w").write(str(os.getpid())))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.rmdir()


def memory_group(megabytes):
    limit = str(megabytes * 1000000)
    return Group("memory", {"memory.limit_in_bytes|memory.max": (limit, limit)})


def test_doctor_names_what_limits_memory_and_threads():
    report = json.loads(carat("doctor", "--json").stdout)
    expect(1 <= report["threads"] <= report["cores"], str(report))
    expect(report["threads_limit"] and report["memory_limit"], str(report))
    expect(0 < report["memory_available"] <= report["memory_total"], str(report))
    text = carat("doctor").stdout.decode()
    expect(f"threads    {report['threads']}, by " in text and "available, by " in text, text)


def test_doctor_obeys_the_affinity_mask():
    if len(os.sched_getaffinity(0)) < 2:
        raise Skip("one processor")
    one = {min(os.sched_getaffinity(0))}
    done = carat("doctor", "--json", preexec_fn=lambda: os.sched_setaffinity(0, one))
    report = json.loads(done.stdout)
    expect(report["threads"] == 1 and report["threads_limit"] == "affinity mask", str(report))


def test_address_space_and_data_are_limits():
    need_small_program()
    for kind, name in ((resource.RLIMIT_AS, "RLIMIT_AS"), (resource.RLIMIT_DATA, "RLIMIT_DATA")):
        done = limited(95, "doctor", "--json", kind=kind)
        report = json.loads(done.stdout)
        expect(report["memory_limit"] == name, str(report))
        expect(report["memory_available"] < 95000000, str(report))
        done = limited(95, *LARGE_CHUNK, kind=kind)
        expect_error(done, 4, "MB needed", "MB available")


def test_a_container_is_refused_memory_by_number_and_never_killed():
    need_small_program()
    with memory_group(40) as group:
        done = group.run(*LARGE_CHUNK)
    expect_error(done, 4, "MB needed", "MB available")
    needed = float(re.search(rb"([0-9.]+) MB needed", done.stderr)[1])
    seen = set()
    for more in range(-8, 13, 2):  # near the size where it begins to fit
        with memory_group(int(needed) + more) as group:
            seen.add(group.run(*LARGE_CHUNK).returncode)
    expect(seen == {0, 4}, str(seen))


def test_a_container_gets_as_much_context_as_it_holds():
    need_small_program()
    seen = set()
    for megabytes in range(8, 60, 6):
        with memory_group(megabytes) as group:
            seen.add(group.run("run", DEMO, "hi", "-n", "20", "--ignore-eos", "-q").returncode)
    expect(seen == {0, 4}, str(seen))


def test_doctor_names_the_memory_group():
    need_small_program()
    with memory_group(300) as group:
        report = json.loads(group.run("doctor", "--json").stdout)
        expect(group.folder.name in report["memory_limit"], str(report))
        expect(0 < report["memory_available"] <= 300000000, str(report))


def test_threads_respect_the_processor_quota():
    files = {"cpu.cfs_period_us|cpu.max": ("100000", "150000 100000"),
             "cpu.cfs_quota_us|cpu.max": ("50000", "50000 100000")}
    with Group("cpu", files) as group:
        done = group.run("doctor", "--json")
        report = json.loads(done.stdout)
        expect(report["threads"] == 1 and group.folder.name in report["threads_limit"],
               str(report))
        expect_status(done, 0)


if __name__ == "__main__":
    program.main(globals())
