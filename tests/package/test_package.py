#!/usr/bin/env python3
"""The Debian package, on this machine: it is installed, used and purged, and leaves nothing behind.

usage: tests/package/test_package.py PACKAGE.deb

This changes the machine for some seconds, so it is not among the tests of ctest: `./dev package
test` runs it. Where it cannot be done (no root, carat is installed) it says so and is skipped.
"""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PLACES = ["/etc/carat", "/etc/default/carat", "/lib/systemd/system/carat.service", "/usr/bin/carat",
          "/usr/share/carat", "/usr/share/doc/carat", "/var/lib/carat", "/var/lib/private/carat",
          "/usr/lib/libcarat.so", "/usr/include/carat.h",
          "/usr/share/lintian/overrides/carat"]
UNIT = pathlib.Path("/lib/systemd/system/carat.service")
EXPOSURE_MAX = 2.5
LIMIT = 60  # seconds for what takes moments


class Skip(Exception):
    """Why a case cannot be tried here."""


def run(*words, **more):
    return subprocess.run(words, capture_output=True, text=True, timeout=LIMIT * 3, **more)


def expect(is_true, text):
    if not is_true:
        raise AssertionError(text)


def expect_done(done, what):
    expect(done.returncode == 0, f"{what}: status {done.returncode}: {done.stdout[-500:]} "
           f"{done.stderr[-500:]}")


def test_lintian_warns_of_nothing(package):
    if not shutil.which("lintian"):
        raise Skip("lintian is not installed")
    done = run("lintian", "--fail-on", "error,warning", "--allow-root", package)
    expect_done(done, "lintian")
    print(done.stdout.strip())


def test_it_installs_and_does_not_start(package):
    expect_done(run("dpkg", "-i", package), "dpkg -i")
    for place in PLACES:
        if not place.startswith("/var"):
            expect(os.path.exists(place), f"{place} is not there")
    expect(not list(pathlib.Path("/etc/systemd/system").rglob("carat.service")), "it is enabled")
    expect(run("pgrep", "-f", "^/usr/bin/carat ").returncode == 1, "it runs")


def test_the_program_the_manual_and_completions_are_there(_):
    done = run("/usr/bin/carat", "run", "demo", "Hello", "-n", "4", "--seed", "1", cwd="/")
    expect_done(done, "carat run demo")
    expect(done.stdout.strip(), "no answer")
    if shutil.which("man"):
        expect("Gemma" in run("man", "-l", "/usr/share/man/man1/carat.1.gz").stdout, "manual")
    script = "source /usr/share/bash-completion/completions/carat; complete -p carat"
    expect_done(run("bash", "-c", script), "completion")


def test_a_c_program_links_with_the_library(_):
    if not shutil.which("cc") or not shutil.which("pkg-config"):
        raise Skip("cc and pkg-config are not both here")
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "one.c"
        source.write_text('#include <carat.h>\n#include <stdio.h>\n'
                          'int main(void) { puts(carat_version()); }\n', encoding="utf-8")
        flags = run("pkg-config", "--cflags", "--libs", "carat").stdout.split()
        expect_done(run("cc", str(source), "-o", f"{folder}/one", *flags), "cc")
        done = run(f"{folder}/one")
        expect_done(done, "the program")
        expect(done.stdout.strip() in run("carat", "version").stdout, "another version")


def test_the_unit_is_correct_and_confined(_):
    if not shutil.which("systemd-analyze"):
        raise Skip("systemd-analyze is not installed")
    done = run("systemd-analyze", "verify", "--man=no", str(UNIT))
    says = [line for line in done.stderr.splitlines() if "carat" in line]
    expect(done.returncode == 0 and not says, f"verify: {says or done.stderr}")
    done = run("systemd-analyze", "security", "--offline=true", "--no-pager", str(UNIT))
    level = float(re.search(r"Overall exposure level for carat.service: ([\d.]+)",
                            done.stdout).group(1))
    print(f"exposure level {level}")
    expect(level <= EXPOSURE_MAX, f"exposure {level}, at most {EXPOSURE_MAX}")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def unit_values(key):
    return re.findall(rf"(?m)^{key}=(.*)$", UNIT.read_text(encoding="utf-8"))


class Service:
    """What the unit starts, as systemd would, but for the confinement: a user without rights, the
    environment of unit and file, a socket for its state."""

    def __init__(self, **environment):
        self.folder = tempfile.TemporaryDirectory()
        os.chmod(self.folder.name, 0o777)
        self.states = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.states.bind(self.folder.name + "/notify")
        os.chmod(self.folder.name + "/notify", 0o777)
        self.states.settimeout(LIMIT)
        words = unit_values("ExecStart")[0].split()
        env = dict(p.split("=", 1) for v in unit_values("Environment") for p in v.split())
        for line in pathlib.Path("/etc/default/carat").read_text(encoding="utf-8").splitlines():
            if "=" in line and not line.startswith("#"):
                env.update([line.split("=", 1)])
        env.update(PATH="/usr/bin:/bin", NOTIFY_SOCKET=self.folder.name + "/notify",
                   HOME=self.folder.name, **environment)
        drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]
        with open(self.folder.name + "/log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([*drop, *words], env=env, cwd=self.folder.name,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def log(self):
        return pathlib.Path(self.folder.name + "/log").read_text(encoding="utf-8")[-1000:]

    def wait_for(self, state):
        seen = []
        while state not in seen:
            try:
                seen += self.states.recv(4096).decode().split("\n")
            except TimeoutError as error:
                raise AssertionError(f"{state} did not come: {seen} {self.log()}") from error

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.states.close()
        self.folder.cleanup()


def ask(port, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    connection.request("POST" if body else "GET", path, json.dumps(body) if body else None,
                       {"Content-Type": "application/json"} if body else {})
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, text


def test_the_service_answers_and_ends_when_told(_):
    if "libmicrohttpd" not in run("ldd", "/usr/bin/carat").stdout:
        raise Skip("this build has no server")
    with open("/etc/default/carat", "a", encoding="utf-8") as file:
        file.write("CARAT_MODEL=demo\n")
    port = free_port()
    service = Service(CARAT_PORT=str(port))
    try:
        service.wait_for("READY=1")
        expect(ask(port, "/health/ready")[0] == 200, "not ready")
        body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
        status, text = ask(port, "/v1/chat/completions", body)
        expect(status == 200 and json.loads(text)["usage"]["completion_tokens"] > 0, text)
        expect("carat_requests_total" in ask(port, "/metrics")[1], "metrics")
        service.process.send_signal(signal.SIGTERM)
        service.wait_for("STOPPING=1")
        expect(service.process.wait(LIMIT) == 0, f"status {service.process.returncode}")
    finally:
        service.stop()


def test_without_a_model_the_service_says_what_is_missing(_):
    if "libmicrohttpd" not in run("ldd", "/usr/bin/carat").stdout:
        raise Skip("this build has no server")
    service = Service(CARAT_MODEL="", CARAT_PORT=str(free_port()))
    try:
        status = service.process.wait(LIMIT)
        expect(str(status) in unit_values("RestartPreventExitStatus")[0].split(),
               f"status {status} would start it again and again")
        expect("MODEL" in service.log(), service.log())
    finally:
        service.stop()


def test_removal_keeps_settings_and_purging_leaves_nothing(package):
    expect(os.path.exists("/usr/bin/carat"), "it is not installed")
    os.makedirs("/var/lib/carat/models", exist_ok=True)
    pathlib.Path("/etc/carat/config").write_text("seed = 1\n", encoding="utf-8")
    expect_done(run("dpkg", "-i", package, stdin=subprocess.DEVNULL), "installing it again")
    expect(pathlib.Path("/etc/carat/config").read_text(encoding="utf-8") == "seed = 1\n",
           "an upgrade loses settings")
    expect_done(run("dpkg", "--remove", "carat"), "dpkg --remove")
    expect(os.path.exists("/etc/carat/config"), "settings are lost")
    expect(not os.path.exists("/usr/bin/carat"), "the program is still there")
    expect_done(run("dpkg", "--purge", "carat"), "dpkg --purge")
    left = [p for p in PLACES if os.path.lexists(p)]
    expect(not left, f"left behind: {left}")
    found = run("find", "/usr", "/etc", "/lib", "/var", "-xdev", "-name", "*carat*",
                "-newer", package).stdout.split()
    expect(not found, f"left behind: {found}")


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    package = os.path.abspath(sys.argv[1])
    why = ("this needs root" if os.geteuid() else
           "carat is installed here" if any(map(os.path.lexists, PLACES)) else
           "" if shutil.which("dpkg") else "this is no Debian")
    counts = {"ok": 0, "FAIL": 0, "skip": 0}
    for name, test in list(globals().items()):
        if not name.startswith("test_"):
            continue
        begin, result, reason = time.monotonic(), "ok", ""
        try:
            if why:
                raise Skip(why)
            test(package)
        except Skip as skipped:
            result, reason = "skip", f": {skipped}"
        except (AssertionError, subprocess.TimeoutExpired, ValueError, OSError) as error:
            result, reason = "FAIL", f": {type(error).__name__}: {error}"
        counts[result] += 1
        print(f"{result:4} {name[5:].replace('_', ' ')} ({time.monotonic() - begin:.1f} s){reason}",
              flush=True)
    if not why:
        run("dpkg", "--purge", "carat")
    print(f"{counts['ok']} passed, {counts['FAIL']} failed, {counts['skip']} skipped")
    raise SystemExit(1 if counts["FAIL"] else 0)


if __name__ == "__main__":
    main()
