#!/usr/bin/env python3
"""pull by several connections at once, and what goes wrong on the way.

usage: tests/e2e/test_pull_several.py PROGRAM [NAME...]     (only tests whose name contains a NAME)
"""
import signal
import threading

import hub
import program
from hub_place import NAME, SECRET, Place
from program import carat, expect, expect_error, expect_status, main

LARGE = 20_000_000  # so that several connections load it


def stretches(place):
    """The stretches that the CDN was asked for."""
    ranges = [h.get("Range", "") for _, h in place.hub.asked("cdn")]
    return [tuple(map(int, r[6:].split("-"))) for r in ranges if not r.endswith("-") and r]


def test_several_connections_load_one_file():
    with Place() as place:
        place.hub.token = SECRET
        file = place.hub.add(NAME, LARGE)
        both, first_two = threading.Barrier(2), iter(range(2))

        def blob(handler):
            is_stretch = not handler.headers.get("Range", "-").endswith("-")
            if is_stretch and next(first_two, None) is not None:
                both.wait(program.LIMIT)
            handler.limited_blob()
        place.hub.overrides = [("/blob/", blob)]
        done = place.pull("hf:u/r", "-j", "3", env={"HF_TOKEN": SECRET})
        expect_status(done, 0)
        place.expect_whole(file)
        asked = sorted(stretches(place))
        expect(len(asked) > 4, str(asked))
        expect(all(b[0] == a[1] + 1 for a, b in zip(asked, asked[1:])), f"overlaps: {asked}")
        expect(asked[0][0] >= 1 << 20 and asked[-1][1] == LARGE - 1, str(asked))
        expect(place.hub.bodies_most <= 3, f"{place.hub.bodies_most} at once")
        resolved = len(place.hub.asked("registry", "resolve"))
        expect(resolved <= 4, f"the registry was asked {resolved} times")
        for path, headers in place.hub.asked("cdn"):
            expect("Authorization" not in headers and SECRET not in path, "the CDN has the token")
        shown = [int(line.split(": ")[-1].split()[0]) for line in done.stderr.decode().splitlines()
                 if " loading " in line]
        expect(shown == sorted(shown) and shown[-1] == 100, str(shown))


def test_one_connection_loads_all_where_it_should():
    for flags, says_ranges, size in ((["-j", "1"], True, LARGE), ([], False, LARGE),
                                     ([], True, 3_000_000)):
        with Place() as place:
            file = place.hub.add(NAME, size)
            place.hub.says_ranges = says_ranges
            expect_status(place.pull("hf:u/r", *flags), 0)
            place.expect_whole(file)
            expect(len(place.hub.asked("cdn")) == 1, str(place.hub.asked("cdn")))
    for value in ("0", "17", "x"):
        done = carat("pull", "hf:u/r", "--jobs", value)
        expect_error(done, 2, "--jobs")


def test_several_connections_load_an_address_without_a_checksum():
    with Place() as place:
        file = place.hub.add(NAME, LARGE)
        expect_status(place.pull(f"{place.hub.cdn}/blob/{NAME}"), 0)
        found = [p for n, p in hub.tree_of(place.store).items() if n.endswith(".gguf")]
        place.expect_whole(file, found[0])
        expect(len(stretches(place)) > 4, "one connection")
    with Place() as place:  # where nothing says whether parts belong together
        file = place.hub.add(NAME, LARGE, etag='W/"first"')
        expect_status(place.pull(f"{place.hub.cdn}/blob/{NAME}"), 0)
        expect(not stretches(place), "several connections")


def kill_late(place, size):
    """A download by several connections that is killed when its part has so many bytes."""
    place.hub.hold = size
    process = place.start("pull", "hf:u/r", "-q")
    place.wait_for_part(size)
    process.kill()
    process.communicate()
    place.hub.hold = 0
    expect(not place.path().exists(), "it has the name")
    with place.hub.lock:
        place.hub.requests.clear()


def pull_whole(place, file, words):
    """Loads the file to its end; standard error has the words."""
    done = place.pull("hf:u/r")
    expect_status(done, 0)
    expect(words in done.stderr.decode(), done.stderr.decode())
    place.expect_whole(file)


def test_several_connections_killed_go_on_from_what_the_disk_has():
    for share in (0.1, 0.6, 0.97):
        with Place() as place:
            file = place.hub.add(NAME, LARGE)
            kill_late(place, int(share * LARGE))
            size = place.part().stat().st_size
            expect(place.part().read_bytes() == file.data[:size], "the part is no beginning")
            pull_whole(place, file, "going on with")
            ranges = [h.get("Range") for _, h in place.hub.asked("cdn")]
            expect(f"bytes={size}-" in ranges, str(ranges))


def test_several_connections_killed_and_a_changed_etag_start_over():
    with Place() as place:
        file = place.hub.add(NAME, LARGE)
        kill_late(place, int(0.97 * LARGE))
        file.etag = '"second"'
        pull_whole(place, file, "changed on the server")


def test_a_file_that_changes_between_two_stretches_starts_over():
    with Place() as place:
        file = place.hub.add(NAME, LARGE)
        place.hub.fault = "changes"
        pull_whole(place, file, "changed on the server")


def test_a_server_that_sends_no_stretches_serves_one_connection():
    with Place() as place:
        file = place.hub.add(NAME, LARGE)
        place.hub.fault = "sends no stretches"
        pull_whole(place, file, "going on with one connection")


def test_stretches_that_break_off_or_are_short_are_completed():
    with Place() as place:
        file = place.hub.add(NAME, LARGE)
        place.hub.cuts = [10 ** 9, 500_000, 100, 0, 10 ** 9, 700_000, 0, 5]
        expect_status(place.pull("hf:u/r"), 0)
        place.expect_whole(file)
    with Place() as place:
        file = place.hub.add(NAME, LARGE)
        place.hub.fault = "sends less"
        expect_status(place.pull("hf:u/r"), 0)
        place.expect_whole(file)


def test_a_server_that_limits_connections_gets_fewer():
    with Place() as place:
        file = place.hub.add(NAME, LARGE)
        place.hub.bodies_max = 2
        done = place.pull("hf:u/r", "-j", "8", "--retries", "2")
        expect_status(done, 0)
        place.expect_whole(file)
        place.hub.commit = "f" * 40
        file = place.hub.add(NAME, LARGE, 2)
        place.hub.bodies_max = 1
        done = place.pull("hf:u/r", "-j", "8", "--retries", "2")
        expect_status(done, 0)
        place.expect_whole(file, place.path(version="f" * 12))


def test_a_server_that_is_gone_ends_all_connections():
    with Place() as place:
        file = place.hub.add(NAME, LARGE)
        place.hub.overrides = [("/blob/", lambda h: h.answer(503) if "-" != h.headers.get(
            "Range", "-")[-1] else h.blob())]
        done = place.pull("hf:u/r", "--retries", "1", "-q")
        expect_error(done, 6, "503")
        expect(place.part().read_bytes() == file.data[:place.part().stat().st_size], "the part")
        place.hub.overrides = []
        expect_status(place.pull("hf:u/r"), 0)
        place.expect_whole(file)


def test_a_place_that_is_good_for_some_time_only_is_asked_for_again():
    with Place() as place:
        file = place.hub.add(NAME, LARGE)
        served = []

        def blob(handler):
            served.append(handler.path)
            if served.count(handler.path) > 3:
                handler.answer(403)
            else:
                handler.blob()

        def resolve(handler):
            n = len(place.hub.asked("registry", "resolve"))
            handler.answer(302, Location=f"{place.hub.cdn}/blob/{NAME}?signature={n}")
        place.hub.overrides = [("/blob/", blob), ("/resolve/", resolve)]
        expect_status(place.pull("hf:u/r"), 0)
        place.expect_whole(file)


def test_ctrl_c_ends_several_connections():
    with Place() as place:
        file = place.hub.add(NAME, LARGE)
        place.hub.pause = 0.01
        process = place.start("pull", "hf:u/r")
        place.wait_for_part(3_000_000)
        process.send_signal(signal.SIGINT)
        text = process.communicate(timeout=program.LIMIT)[1].decode()
        expect(process.returncode == 130 and "carat pull hf:u/r" in text, text)
        place.hub.pause = 0
        expect_status(place.pull("hf:u/r"), 0)
        place.expect_whole(file)


def test_lies_about_stretches_are_errors():
    for fault, words in (("lies about the beginning", "Content-Range"),
                         ("announces more", "Content-"), ("lies about the size", "Content-Range")):
        with Place() as place:
            file = place.hub.add(NAME, LARGE)

            def blob(handler, lie=fault):
                place.hub.fault = lie if handler.headers.get("Range") else ""
                handler.blob()
            place.hub.overrides = [("/blob/", blob)]
            done = place.pull("hf:u/r", "-q", "--retries", "0")
            expect(done.returncode == 6, f"{fault}: {done.returncode} {done.stderr.decode()}")
            expect_error(done, 6, words)
            part = place.part().read_bytes()
            expect(part == file.data[:len(part)] and not place.path().exists(), fault)


if __name__ == "__main__":
    main(globals())
