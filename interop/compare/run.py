"""What programs for the same purpose do with a result of 20 MB: directly, and through a path capped at 1 MB.

    python3 interop/compare/run.py FOLDER

FOLDER gets the programs, from npm, PyPI and crates.io (package.json and requirements.txt here name the
versions); `breakbulk` must be on the PATH. Each pair is a server's side before `breakbulk echo` and a
client's side below `breakbulk echo --ask 20MB`; the path is `breakbulk relay`. Prints a Markdown table, which
docs/COMPARISON.md keeps.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
WEBSOCAT = "1.14.1"
SIZE = "20MB"
CAP = "1MB"
TIMEOUT = 60

# Name, scheme of the path, the server's side, the client's side. PORT is put in.
PAIRS = [
    ("websocat", "ws", "websocat -t ws-l:127.0.0.1:PORT cmd:'breakbulk echo'", "websocat -t ws://127.0.0.1:PORT"),
    (
        "websocat -B 32MiB",
        "ws",
        "websocat -B 33554432 -t ws-l:127.0.0.1:PORT cmd:'breakbulk echo'",
        "websocat -B 33554432 -t ws://127.0.0.1:PORT",
    ),
    (
        "supergateway",
        "http",
        "supergateway --stdio 'breakbulk echo' --outputTransport streamableHttp --stateful --port PORT",
        "supergateway --streamableHttp http://127.0.0.1:PORT/mcp",
    ),
    (
        "mcp-proxy",
        "http",
        "mcp-proxy --pass-environment --port PORT -- breakbulk echo",
        "mcp-proxy --transport streamablehttp http://127.0.0.1:PORT/mcp",
    ),
    (
        "mcp-remote (to mcp-proxy)",
        "http",
        "mcp-proxy --pass-environment --port PORT -- breakbulk echo",
        "mcp-remote http://127.0.0.1:PORT/mcp --transport http-only --allow-http",
    ),
    (
        "breakbulk, WebSocket",
        "ws",
        "breakbulk gateway --listen ws://PORT --to 'exec:breakbulk echo'",
        "breakbulk gateway --listen stdio: --to ws://127.0.0.1:PORT",
    ),
    (
        "breakbulk, HTTP",
        "http",
        "breakbulk gateway --listen ahp+http://PORT --to 'exec:breakbulk echo'",
        "breakbulk gateway --listen stdio: --to ahp+http://127.0.0.1:PORT",
    ),
]


def install(folder):
    """Installs what is not there yet; returns the environment to run the programs in."""
    for name in ["package.json", "requirements.txt"]:
        shutil.copy(HERE / name, folder / name)
    if not (folder / "node_modules").exists():
        subprocess.run(["npm", "install", "--no-audit", "--no-fund"], cwd=folder, check=True)
    if not (folder / "venv").exists():
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        subprocess.run([folder / "venv/bin/pip", "install", "-q", "-r", "requirements.txt"], cwd=folder, check=True)
    if not (folder / "ws/bin/websocat").exists():
        line = ["cargo", "install", "websocat", "--version", WEBSOCAT, "--locked", "--root", folder / "ws"]
        subprocess.run(line, check=True)
    bins = [folder / "node_modules/.bin", folder / "venv/bin", folder / "ws/bin"]
    path = os.pathsep.join([*map(str, bins), os.environ["PATH"]])
    home = folder / "home"
    home.mkdir(exist_ok=True)
    return {**os.environ, "PATH": path, "HOME": str(home)}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Running:
    """A server that is ended with all of its processes."""

    def __init__(self, command, port, environment, log):
        self.log = log
        self.process = subprocess.Popen(
            command, shell=True, env=environment, stdout=log.open("w"), stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        self.end()
        raise SystemExit(f"{command} does not listen:\n{log.read_text()}")

    def end(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def ask(client, port, environment):
    """What the client's side says in the end, and how long it took."""
    line = f"breakbulk echo --ask {SIZE} --timeout {TIMEOUT} {client.replace('PORT', str(port))}"
    start = time.monotonic()
    # Its own group: a client's side that hangs is ended too.
    process = subprocess.Popen(
        line, shell=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL, start_new_session=True, text=True, errors="replace",
    )
    try:
        printed, said = process.communicate(timeout=TIMEOUT + 30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed, said = process.communicate()
    took = time.monotonic() - start
    if process.returncode == 0:
        return f"arrives ({printed.strip().rsplit(' in ')[-1]})"
    told = [line for line in said.splitlines() if line.startswith("breakbulk: ")]
    told = told[-1].removeprefix("breakbulk: ") if told else f"exit code {process.returncode}"
    told = re.sub(r"\s+", " ", told.split(";")[0])
    return f"**fails** after {took:.0f} s: {told[:160]}"


def main():
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    environment = install(folder)
    print(f"| | {SIZE} directly | through a cap of {CAP} | the path said |\n|---|---|---|---|")
    wanted = sys.argv[2:]
    for name, scheme, server, client in PAIRS:
        if wanted and not any(word in name for word in wanted):
            continue
        port, path_port = free_port(), free_port()
        far = Running(server.replace("PORT", str(port)), port, environment, folder / "server.log")
        direct = ask(client, port, environment)
        line = f"breakbulk relay --listen {scheme}://{path_port} --to {scheme}://127.0.0.1:{port} --cap {CAP}"
        path = Running(line, path_port, environment, folder / "path.log")
        capped = ask(client, path_port, environment)
        # Refusals over HTTP are told a moment later.
        time.sleep(0.5)
        path.end()
        far.end()
        told = [line for line in path.log.read_text().splitlines() if " WARN " in line]
        told = told[-1].split(" WARN ")[1].split(" (")[0] if told else "nothing"
        told = re.sub(r"127\.0\.0\.1:\d+", "the server", told)
        print(f"| {name} | {direct} | {capped} | {told} |", flush=True)


main()
