#!/usr/bin/env python3
"""The instruction set of the CPU backend: forced, told, and refused where a machine lacks it.

usage: tests/e2e/test_isa.py PROGRAM [WORDS]
"""
import json
import pathlib
import tempfile

import program
from program import MODEL, carat, environment, expect, expect_error, expect_status

# Those of --isa, besides auto.
WORDS = ("amx", "avx512", "avxvnni", "avx2", "i8mm", "neon", "asimd", "plain")
COMMANDS = (("run", MODEL, "hi", "-n", "1"), ("chat", MODEL), ("serve", MODEL, "--port", "0"),
            ("logits", MODEL, "hi"), ("perplexity", MODEL, "-f", "x"), ("bench", MODEL),
            ("plan", MODEL), ("show", MODEL), ("doctor",))


def sets():
    """{name: problem or None}, best first, and the one in use."""
    report = json.loads(carat("doctor", "--json").stdout)
    return {one["name"]: one["problem"] for one in report["isas"]}, report["isa"]


def usable():
    return [name for name, problem in sets()[0].items() if not problem]


def test_doctor_lists_all_sets_and_uses_the_best():
    known, used = sets()
    expect(set(known) <= set(WORDS), f"--isa has no word for {set(known) - set(WORDS)}")
    expect("plain" in usable() and used == usable()[0], f"{known}, {used} in use")
    line = next(line for line in carat("doctor").stdout.decode().splitlines()
                if line.startswith("isa "))
    for name, problem in known.items():
        expect(not problem or not problem.startswith("isa"), str(problem))
        expect(f"{name} (in use)" in line if name == used else
               f"{name} ({problem})" in line if problem else name in line, line)


def test_each_set_that_runs_here_can_be_forced():
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "config"
        for name in usable():
            file.write_text(f"isa = {name}\n")
            ways = ((("--isa", name), environment()), ((), environment(CARAT_ISA=name)),
                    ((), environment(CARAT_CONFIG=str(file))))
            for words, env in ways:
                done = carat("run", MODEL, "hi", "-n", "1", "--backend", "cpu", *words, env=env)
                expect_status(done, 0)
                expect(f", {name}, ".encode() in done.stderr, f"{name}: {done.stderr!r}")
            report = json.loads(carat("doctor", "--json", "--isa", name).stdout)
            expect(report["isa"] == name, f"{name}: {report['isa']}")


def test_every_command_that_computes_refuses_a_set_that_is_missing():
    missing = [name for name in WORDS if name not in usable()]
    expect(missing, "no machine has the sets of two kinds of processors")
    for command in COMMANDS:
        done = carat(*command, "--isa", missing[-1])
        expect_error(done, 2, f"isa {missing[-1]}: ")
        expect(f"this machine runs: {', '.join(usable())}".encode() in done.stderr,
               str(done.stderr))
    expect_error(carat(*COMMANDS[0], env=environment(CARAT_ISA=missing[-1])), 2, "isa ")


def test_an_unknown_set_is_refused_by_the_names_that_there_are():
    expect_error(carat("run", MODEL, "hi", "--isa", "mmx"), 2, f"auto|{'|'.join(WORDS)}")
    expect_error(carat("run", MODEL, "hi", env=environment(CARAT_ISA="mmx")), 2, "CARAT_ISA")


if __name__ == "__main__":
    program.main(globals())
