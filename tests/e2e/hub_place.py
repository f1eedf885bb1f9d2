"""A stand-in for the registries, an empty home folder, and the program between them."""
import pathlib
import subprocess
import tempfile

import hub
from program import PROGRAM, Skip, carat, environment, expect, libraries, wait_until

SECRET = "hf_averysecrettoken"
NAME = "gemma-tiny-Q4_K_M.gguf"


class Place:
    """A stand-in, an empty home folder, and the program between them."""

    def __init__(self, tls=None):
        missing = [name for name in ("jansson", "gnutls", "libcurl") if name not in libraries()]
        if missing:
            raise Skip(f"built without {', '.join(missing)}")
        self.folder = tempfile.TemporaryDirectory()
        self.home = pathlib.Path(self.folder.name)
        self.store = self.home / ".local/share/carat/models"
        self.hub = hub.Hub(tls)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hub.__exit__()
        self.folder.cleanup()

    def env(self, **more):
        kept = {k: v for k, v in environment().items() if not k.lower().endswith("_proxy") and
                not k.startswith(("HF_", "HUGGINGFACE_", "XDG_", "OLLAMA_", "SSL_", "CURL_"))}
        return {**kept, "HOME": str(self.home), "HF_ENDPOINT": self.hub.endpoint, **more}

    def run(self, *arguments, **more):
        env = self.env(**more.pop("env", {}))
        return carat(*arguments, env=env, cwd=str(self.home), **more)

    def pull(self, *arguments, **more):
        return self.run("pull", *arguments, **more)

    def start(self, *arguments, **more):
        return subprocess.Popen([PROGRAM, *arguments], env=self.env(**more), cwd=self.home,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def path(self, name=NAME, version=hub.COMMIT[:12]):
        return self.store / "hf/u/r" / version / name

    def part(self, name=NAME, version=hub.COMMIT[:12]):
        return pathlib.Path(f"{self.path(name, version)}.part")

    def wait_for_part(self, size):
        wait_until(lambda: self.part().exists() and self.part().stat().st_size >= size,
                   f"the part has {size} bytes")

    def expect_whole(self, file, path=None):
        path = pathlib.Path(path or self.path())
        expect(path.exists(), f"{path.name} is not there: {sorted(hub.tree_of(self.store))}")
        expect(path.read_bytes() == file.data, f"{path.name} has other bytes")
        left = [n for n in hub.tree_of(self.store) if n.endswith((".part", ".part.json", ".lock"))]
        expect(not left, f"left behind: {left}")

    def kill_at(self, size):
        """A download that is killed when its part has so many bytes."""
        self.hub.cuts, self.hub.fault = [size], "stalls"
        process = self.start("pull", "hf:u/r")
        self.wait_for_part(size)
        process.kill()
        process.communicate()
        self.hub.fault = ""
