#!/usr/bin/env python3
"""Makes a Debian package of a build folder: program, library, unit, manual page, completions.

usage: tools/package.py BUILD OUT

Prints the path of the package, which is written to the folder OUT. Needs dpkg-dev and binutils. The
same commit and compiler give the same bytes: times are those of the commit ($SOURCE_DATE_EPOCH).
"""
import email.utils
import gzip
import hashlib
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEBIAN = ROOT / "deploy/debian"
MAINTAINER = os.environ.get("DEBEMAIL", "carat developers <carat@carat.invalid>")
SUMMARY = "runs Gemma 4 language models from GGUF files"
DESCRIPTION = """\
 One program and one C library for Google's Gemma 4 models on the CPU and on
 NVIDIA GPUs: answers and chats on the command line, and a server that speaks
 the HTTP interfaces of OpenAI, Anthropic and ollama.
 .
 The service carat.service does not run until a model is named in
 /etc/default/carat and it is enabled."""


def run(*words, **more):
    return subprocess.run([str(w) for w in words], check=True, text=True, **more)


def output(*words, **more):
    return run(*words, stdout=subprocess.PIPE, **more).stdout.strip()


def git(*words):
    try:
        return output("git", "-C", ROOT, *words, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return ""


def version_of():
    """The version of the header; before its release, with the number and name of the commit."""
    header = (ROOT / "include/carat.h").read_text(encoding="utf-8")
    version = re.search(r'CARAT_VERSION "(.*)"', header).group(1)
    if git("describe", "--tags", "--exact-match") == f"v{version}":
        return version
    return f"{version}~git{git('rev-list', '--count', 'HEAD') or 0}" + \
        (f".{git('rev-parse', '--short', 'HEAD')}" if git("rev-parse", "HEAD") else "")


def seconds_of_commit():
    return int(os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct") or 0)


def compress(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, 9, mtime=0))


def put(target, source, mode=0o644):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def install(build, tree):
    """What `cmake --install` puts below /usr, in the places that Debian has for it."""
    run("cmake", "--install", build, "--prefix", "/usr", env={**os.environ, "DESTDIR": str(tree)},
        stdout=subprocess.DEVNULL)
    zsh = tree / "usr/share/zsh"
    (zsh / "site-functions").rename(zsh / "vendor-completions")
    manual = tree / "usr/share/man/man1/carat.1"
    compress(manual.with_name("carat.1.gz"), manual.read_bytes())
    manual.unlink()
    for path in sorted((tree / "usr").rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        if path.suffix == ".a":
            run("strip", "--strip-debug", "--remove-section=.comment",
                "--enable-deterministic-archives", path)
        elif path.name == "carat" and path.parent.name == "bin" or ".so" in path.name:
            run("strip", "--strip-unneeded", "--remove-section=.comment", path)


def add_documents(tree, version, seconds):
    folder = tree / "usr/share/doc/carat"
    put(folder / "copyright", DEBIAN / "copyright")
    put(tree / "usr/share/lintian/overrides/carat", DEBIAN / "lintian-overrides")
    for name in ("README.md", "CHANGELOG.md", "docs/options.md", "docs/operations.md",
                 "docs/library.md", "docs/openapi.yaml"):
        if (ROOT / name).exists():
            compress(folder / (pathlib.Path(name).name + ".gz"), (ROOT / name).read_bytes())
    entry = (f"carat ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md.gz.\n\n"
             f" -- {MAINTAINER}  {email.utils.formatdate(seconds)}\n")
    compress(folder / "changelog.gz", entry.encode())
    for source in sorted((ROOT / "deploy").rglob("*")):
        if source.is_file() and DEBIAN not in source.parents:
            put(folder / "examples" / source.relative_to(ROOT / "deploy"), source)


def add_service(tree):
    put(tree / "lib/systemd/system/carat.service", DEBIAN / "carat.service")
    put(tree / "etc/carat/config", DEBIAN / "config")
    put(tree / "etc/default/carat", DEBIAN / "default")


def depends(tree):
    """The packages of the shared libraries that the program and the library need."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "debian").mkdir()
        (pathlib.Path(folder) / "debian/control").write_text(
            "Source: carat\n\nPackage: carat\nArchitecture: any\n", encoding="utf-8")
        library = next((tree / "usr/lib").glob("libcarat.so.*.*"))
        text = output("dpkg-shlibdeps", "-O", "--ignore-missing-info", tree / "usr/bin/carat",
                      library, cwd=folder, stderr=subprocess.DEVNULL)
    return text.removeprefix("shlibs:Depends=")


def write_control(tree, version):
    control = tree / "DEBIAN"
    control.mkdir()
    files = [p for p in sorted(tree.rglob("*")) if p.is_file() and control not in p.parents]
    size = sum(-(-p.lstat().st_size // 1024) for p in files)
    fields = {
        "Package": "carat", "Version": version, "Section": "science", "Priority": "optional",
        "Architecture": output("dpkg", "--print-architecture"), "Maintainer": MAINTAINER,
        "Installed-Size": size, "Pre-Depends": "init-system-helpers (>= 1.54~)",
        "Depends": depends(tree), "Recommends": "ca-certificates",
        "Suggests": "libjansson-dev, pkg-config, haproxy",
        "Description": f"{SUMMARY}\n{DESCRIPTION}"}
    text = "".join(f"{key}: {value}\n" for key, value in fields.items())
    (control / "control").write_text(text, encoding="utf-8")
    (control / "conffiles").write_text("/etc/carat/config\n/etc/default/carat\n", encoding="utf-8")
    major = version.split(".")[0]
    (control / "shlibs").write_text(f"libcarat {major} carat (>= {version.split('~')[0]}~)\n",
                                    encoding="utf-8")
    (control / "triggers").write_text("activate-noawait ldconfig\n", encoding="utf-8")
    sums = (f"{hashlib.md5(p.read_bytes()).hexdigest()}  {p.relative_to(tree)}\n"
            for p in files if not p.is_symlink() and (tree / "etc") not in p.parents)
    (control / "md5sums").write_text("".join(sums), encoding="utf-8")
    for name in ("postinst", "prerm", "postrm"):
        put(control / name, DEBIAN / name, 0o755)


def set_modes(tree):
    for path in [tree, *tree.rglob("*")]:
        if not path.is_symlink():
            is_run = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if is_run and ".so" not in path.name else 0o644)


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    build, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    version, seconds = version_of(), seconds_of_commit()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "carat"
        tree.mkdir()
        install(build, tree)
        add_service(tree)
        add_documents(tree, version, seconds)
        write_control(tree, version)
        set_modes(tree)
        run("dpkg-deb", "--root-owner-group", "-Zxz", "--build", tree, out,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(seconds)}, stdout=subprocess.DEVNULL)
    name = f"carat_{version}_{output('dpkg', '--print-architecture')}.deb"
    print(out / name)


if __name__ == "__main__":
    main()
