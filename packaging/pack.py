#!/usr/bin/env python3
"""Packs a built program for people without a compiler: npm, PyPI, Debian, a plain archive, and checksums.

    packaging/pack.py --program target/dist/breakbulk --target x86_64-unknown-linux-gnu --out packages

Needs nothing but Python, and dpkg-deb for the Debian package. The same input gives the same bytes.
"""

import argparse
import base64
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUMMARY = "Large RPC messages over paths whose frames are capped"

# What each registry calls a system that the program is built for: npm's platform and processor, the tag of a
# wheel, and Debian's architecture.
TARGETS = {
    "x86_64-unknown-linux-gnu": ("linux", "x64", "linux_x86_64", "amd64"),
    "aarch64-unknown-linux-gnu": ("linux", "arm64", "linux_aarch64", "arm64"),
    "x86_64-apple-darwin": ("darwin", "x64", "macosx_11_0_x86_64", None),
    "aarch64-apple-darwin": ("darwin", "arm64", "macosx_11_0_arm64", None),
    "x86_64-pc-windows-msvc": ("win32", "x64", "win_amd64", None),
}

# The pages of docs/ that no package carries: they are for whoever changes the program or judges it, and large.
NOT_CARRIED = ("COMPARISON", "DECISIONS", "FAILURES", "LIBRARY", "RULES", "SCALE", "THREATS", "TRUST")

LICENSES = ("LICENSE-MIT", "LICENSE-APACHE")

# 1980-01-01, the earliest that a zip file knows.
EPOCH = 315532800


def version():
    text = (ROOT / "Cargo.toml").read_text()
    return re.search(r'\[workspace\.package\]\nversion = "([^"]+)"', text)[1]


def glibc(program):
    """The newest glibc that the program asks for, as (2, 34); None if it is linked without one."""
    found = re.findall(rb"GLIBC_(\d+)\.(\d+)", program)
    return max(((int(a), int(b)) for a, b in found), default=None)


def write_tar(path, members):
    """A tar.gz of (name, bytes, mode)."""
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 6, file, 0) as packed:
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for name, content, mode in members:
                about = tarfile.TarInfo(name)
                about.size, about.mode, about.mtime = len(content), mode, EPOCH
                archive.addfile(about, io.BytesIO(content))


def pages():
    """The pages for users, as (name, bytes), without links to what is not among them."""
    texts = {file.name: file.read_text() for file in sorted((ROOT / "docs").glob("*.md"))}
    texts = {name: text for name, text in texts.items() if Path(name).stem not in NOT_CARRIED}
    return [(name, without_dead_links(text, {"", *texts}).encode()) for name, text in texts.items()]


def readme(has_pages):
    """What a package says about itself. Its links lead to the pages if these are in docs/ beside it."""
    text = (ROOT / "packaging/README.md").read_text()
    there = {f"docs/{name}" for name, _ in pages()} if has_pages else set()
    return without_dead_links(text, there).encode()


def without_dead_links(text, there):
    """Keeps links to the web and to the files that are there; of others only their words, and no picture."""

    def kept(link):
        picture, words, target = link.groups()
        is_there = target.startswith("https://") or target.partition("#")[0] in there
        return link[0] if is_there and not picture else "" if picture else words

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]*)\)", kept, text)


def licenses():
    return [(name, (ROOT / name).read_bytes()) for name in LICENSES]


def npm(out, program, target, executable):
    """The package of this system, and the one that everybody asks for, which chooses among all of them."""
    platform, processor, _, _ = TARGETS[target]
    shared = {
        "version": version(),
        "description": SUMMARY,
        "license": "MIT OR Apache-2.0",
        "keywords": ["rpc", "mcp", "websocket", "relay", "json-rpc"],
    }
    name = f"breakbulk-{platform}-{processor}"
    about = {
        "name": name,
        **shared,
        "os": [platform],
        "cpu": [processor],
        "files": [executable],
        "preferUnplugged": True,
    }
    if platform == "linux" and glibc(program):
        # Without it Alpine would install a program that cannot be started there.
        about["libc"] = ["glibc"]
    texts = [(f"package/{name}", text, 0o644) for name, text in licenses()]
    members = [
        ("package/package.json", dump(about), 0o644),
        ("package/README.md", readme(False), 0o644),
        *texts,
        (f"package/{executable}", program, 0o755),
    ]
    write_tar(out / f"{name}-{version()}.tgz", members)
    programs = [f"breakbulk-{p}-{c}" for p, c, _, _ in TARGETS.values()]
    about = {
        "name": "breakbulk",
        **shared,
        "bin": {"breakbulk": "breakbulk.js"},
        "files": ["breakbulk.js", "docs"],
        "engines": {"node": ">=18"},
        "optionalDependencies": {name: version() for name in programs},
    }
    members = [
        ("package/package.json", dump(about), 0o644),
        ("package/README.md", readme(True), 0o644),
        *texts,
        *[(f"package/docs/{name}", text, 0o644) for name, text in pages()],
        ("package/breakbulk.js", (ROOT / "packaging/npm/breakbulk.js").read_bytes(), 0o755),
    ]
    write_tar(out / f"breakbulk-{version()}.tgz", members)


def dump(value):
    return (json.dumps(value, indent=2) + "\n").encode()


def wheel(out, program, target, executable):
    """A wheel with the program, as a script, and its pages in share/doc."""
    tag = TARGETS[target][2]
    needs = glibc(program)
    if tag.startswith("linux_") and needs:
        # PyPI takes no wheel that does not say which systems it runs on.
        tag = f"manylinux_{needs[0]}_{needs[1]}_{tag.removeprefix('linux_')}"
    tag = f"py3-none-{tag}"
    info = f"breakbulk-{version()}.dist-info"
    metadata = (
        f"Metadata-Version: 2.4\nName: breakbulk\nVersion: {version()}\nSummary: {SUMMARY}\n"
        "License-Expression: MIT OR Apache-2.0\n"
        + "".join(f"License-File: {name}\n" for name in LICENSES)
        + "Requires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n"
        + readme(False).decode()
    )
    kind = f"Wheel-Version: 1.0\nGenerator: breakbulk\nRoot-Is-Purelib: false\nTag: {tag}\n"
    data = f"breakbulk-{version()}.data"
    members = [
        (f"{data}/scripts/{executable}", program, 0o755),
        *[(f"{data}/data/share/doc/breakbulk/{name}", text, 0o644) for name, text in pages()],
        *[(f"{info}/licenses/{name}", text, 0o644) for name, text in licenses()],
        (f"{info}/METADATA", metadata.encode(), 0o644),
        (f"{info}/WHEEL", kind.encode(), 0o644),
    ]
    record = ""
    for name, content, _ in members:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
        record += f"{name},sha256={digest.decode()},{len(content)}\n"
    members.append((f"{info}/RECORD", (record + f"{info}/RECORD,,\n").encode(), 0o644))
    with zipfile.ZipFile(out / f"breakbulk-{version()}-{tag}.whl", "w") as archive:
        for name, content, mode in members:
            about = zipfile.ZipInfo(name)
            about.external_attr = (0o100000 | mode) << 16
            about.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(about, content, compresslevel=6)


def debian(out, program, target, path):
    """A package for Debian and Ubuntu: the program, its unit, man pages, completions and pages."""
    architecture = TARGETS[target][3]
    if architecture is None or shutil.which("dpkg-deb") is None:
        print("no Debian package: it is made on Linux, with dpkg-deb")
        return
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"

        def put(name, content, mode=0o644):
            file = tree / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            file.chmod(mode)

        put("usr/bin/breakbulk", program, 0o755)
        put("usr/lib/systemd/system/breakbulk.service", (ROOT / "packaging/breakbulk.service").read_bytes())
        docs = "usr/share/doc/breakbulk"
        put(f"{docs}/examples/gateway.toml", (ROOT / "packaging/gateway.toml").read_bytes())
        for name, text in pages():
            put(f"{docs}/{name}", text)
        put(f"{docs}/copyright", b"\n\nor, as you like:\n\n".join(text for _, text in licenses()))
        # The program makes its own man pages, so it must run here.
        manual = Path(folder) / "man"
        manual.mkdir()
        subprocess.run([path, "man", manual], check=True)
        for page in sorted(manual.iterdir()):
            put(f"usr/share/man/man1/{page.name}.gz", gzip.compress(page.read_bytes(), 9, mtime=0))
        for shell, file in [
            ("bash", "usr/share/bash-completion/completions/breakbulk"),
            ("zsh", "usr/share/zsh/vendor-completions/_breakbulk"),
            ("fish", "usr/share/fish/vendor_completions.d/breakbulk.fish"),
        ]:
            script = subprocess.run([path, "completions", shell], check=True, stdout=subprocess.PIPE)
            put(file, script.stdout)
        size = sum(file.stat().st_size for file in tree.rglob("*") if file.is_file()) // 1024
        needs = glibc(program)
        libc = f"libc6 (>= {needs[0]}.{needs[1]}), " if needs else ""
        put(
            "DEBIAN/control",
            (
                f"Package: breakbulk\nVersion: {version()}\nArchitecture: {architecture}\n"
                f"Section: net\nPriority: optional\nInstalled-Size: {size}\n"
                f"Maintainer: The breakbulk authors <authors@breakbulk.invalid>\n"
                f"Depends: {libc}libgcc-s1\nRecommends: ca-certificates\n"
                f"Description: {SUMMARY}\n"
                " A gateway that carries the messages of unchanged programs over relays, proxies\n"
                " and pipes with a limit on sizes, a splitter, an inspector and a probe.\n"
            ).encode(),
        )
        for entry in [tree, *tree.rglob("*")]:
            if entry.is_dir():
                entry.chmod(0o755)
        name = out / f"breakbulk_{version()}_{architecture}.deb"
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}
        command = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", tree, name]
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def plain(out, program, target, executable):
    """An archive for whoever unpacks by hand."""
    example = (ROOT / "packaging/gateway.toml").read_bytes()
    texts = [*licenses(), ("README.md", readme(True)), ("gateway.toml", example)]
    texts += [(f"docs/{name}", text) for name, text in pages()]
    files = [(name, text, 0o644) for name, text in texts]
    name = f"breakbulk-{version()}-{target}"
    members = [(f"{name}/{file}", content, mode) for file, content, mode in [(executable, program, 0o755), *files]]
    write_tar(out / f"{name}.tar.gz", members)


def checksums(out):
    """SHA256SUMS of all that is there, for `sha256sum --check`."""
    lines = ""
    for file in sorted(out.iterdir()):
        if file.name != "SHA256SUMS":
            lines += f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n"
    (out / "SHA256SUMS").write_text(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=Path, help="the built program; without it only the checksums are made")
    parser.add_argument("--target", choices=TARGETS, help="the system that it was built for")
    parser.add_argument("--out", type=Path, required=True, help="the folder for the packages")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.program:
        if options.target is None:
            parser.error("--program needs --target")
        program = options.program.read_bytes()
        executable = "breakbulk.exe" if "windows" in options.target else "breakbulk"
        npm(options.out, program, options.target, executable)
        wheel(options.out, program, options.target, executable)
        debian(options.out, program, options.target, options.program.resolve())
        plain(options.out, program, options.target, executable)
    checksums(options.out)
    for file in sorted(options.out.iterdir()):
        print(f"{file.stat().st_size:>12,}  {file.name}")


if __name__ == "__main__":
    main()
