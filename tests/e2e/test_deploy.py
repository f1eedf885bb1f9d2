#!/usr/bin/env python3
"""The files in deploy/: units, proxies and manifests are what their programs accept, and their
times fit together.

usage: tests/e2e/test_deploy.py PROGRAM [NAME...]       (only tests whose name contains a NAME)
"""
import json
import re
import shutil
import subprocess
import tempfile

from program import Skip, carat, environment, expect, expect_status, main, ROOT

DEPLOY = ROOT / "deploy"


def need(program):
    if not shutil.which(program):
        raise Skip(f"{program} is not installed")


def run(*words):
    return subprocess.run(words, capture_output=True, text=True)


def text_of(name):
    return (DEPLOY / name).read_text(encoding="utf-8")


def test_haproxy_takes_its_file():
    need("haproxy")
    done = run("haproxy", "-c", "-f", str(DEPLOY / "haproxy.cfg"))
    says = done.stdout + done.stderr
    expect(done.returncode == 0 and "WARNING" not in says, says)


def test_the_unit_is_confined():
    need("systemd-analyze")
    with tempfile.TemporaryDirectory() as folder:  # the name without the rest of the path
        path = shutil.copy(DEPLOY / "debian/carat.service", folder)
        done = run("systemd-analyze", "security", "--offline=true", "--no-pager", path)
    match = re.search(r"Overall exposure level for carat.service: ([\d.]+)", done.stdout)
    expect(match, f"{done.stdout[-200:]} {done.stderr[-200:]}")
    expect(float(match.group(1)) <= 2.5, f"exposure {match.group(1)}")


def test_the_unit_leaves_time_for_running_answers():
    unit = text_of("debian/carat.service")
    options = json.loads(carat("config", "serve", "--json").stdout)["options"]
    drain = next(float(o["value"]) for o in options if o["name"] == "shutdown-timeout")
    expect(float(re.search(r"TimeoutStopSec=(\d+)", unit).group(1)) > drain, "TimeoutStopSec")


def test_pods_leave_time_for_running_answers():
    pod = text_of("kubernetes/carat.yaml")
    grace = float(re.search(r"terminationGracePeriodSeconds: (\d+)", pod).group(1))
    hook = float(re.search(r"sleep (\d+)", pod).group(1))
    drain = float(re.search(r'CARAT_SHUTDOWN_TIMEOUT\n +value: "(\d+)"', pod).group(1))
    expect(grace > hook + drain, f"{grace} s, more than {hook} + {drain} s needed")
    for probe, path in (("startup", "ready"), ("liveness", "live"), ("readiness", "ready")):
        expect(re.search(rf"{probe}Probe:\n +httpGet:\n +path: /health/{path}\n", pod), probe)


def test_the_service_sets_no_options_of_the_pods():
    text = text_of("kubernetes/carat.yaml")
    service = next(t for t in text.split("\n---\n") if "\nkind: Service\n" in t)
    name = re.search(r"(?m)^  name: (\S+)$", service).group(1)
    env = environment(**{f"{name.upper()}_PORT": "tcp://10.96.0.10:80"})  # as Kubernetes has it
    is_harmless = carat("config", "serve", env=env).returncode == 0
    expect(is_harmless or re.search(r"(?m)^      enableServiceLinks: false$", text),
           f"{name.upper()}_PORT of the Service is taken for --port")


def test_variables_in_the_examples_are_options():
    options = {o["name"] for o in
               json.loads(carat("config", "serve", "--json").stdout)["options"]}
    known = {"CARAT_" + name.upper().replace("-", "_") for name in options} | {"CARAT_MODELS"}
    for name in ("Containerfile", "kubernetes/carat.yaml", "debian/default",
                 "debian/carat.service", "../docs/operations.md"):
        found = set(re.findall(r"\bCARAT_[A-Z_]+\b", text_of(name)))
        expect(found <= known, f"{name}: {found - known}")


def test_the_packages_config_file_is_valid_also_without_its_marks():
    text = text_of("debian/config")
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        for content in (text, re.sub(r"(?m)^#(?=[a-z\[])", "", text)):
            file.seek(0)
            file.truncate()
            file.write(content)
            file.flush()
            env = environment(CARAT_CONFIG=file.name)
            done = carat("config", "serve", "demo", "--json", env=env)
            expect_status(done, 0)
    expect(b'"line":' in done.stdout and b'"origin":"model"' in done.stdout, "nothing was read")


def test_manifests_have_no_tabs_and_known_kinds():
    kinds = set()
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        expect("\t" not in text, f"{path.name}: a tab")
        for document in text.split("\n---\n"):
            facts = re.findall(r"(?m)^(apiVersion|kind): (\S+)$", document)
            expect([key for key, _ in facts] == ["apiVersion", "kind"], f"{path.name}: {facts}")
            kinds.add(tuple(value for _, value in facts))
    expect(kinds == {("apps/v1", "Deployment"), ("v1", "Service"),
                     ("policy/v1", "PodDisruptionBudget"),
                     ("inference.networking.k8s.io/v1", "InferencePool"),
                     ("gateway.networking.k8s.io/v1", "HTTPRoute")}, f"{kinds}")


if __name__ == "__main__":
    main(globals())
