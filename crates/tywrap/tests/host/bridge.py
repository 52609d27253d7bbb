"""A bridge for tests: it does what it is told, and much of that is wrong."""

import json
import os
import signal
import subprocess
import sys
import time

PROTOCOL = "tywrap/1"
FRAME = "tywrap-frame/1"
MAX = int(sys.argv[sys.argv.index("--tywrap-max-frame-bytes") + 1])
OUT = sys.stdout.buffer


def write(line):
    if isinstance(line, str):
        line = line.encode("utf-8", "surrogatepass")
    OUT.write(line + b"\n")
    OUT.flush()


def frames(id, text, size=None, **change):
    """The frames of a message, of so many bytes of data each."""
    size = size or MAX
    pieces, at = [], 0
    data = text.encode()
    while at < len(data):
        end = min(at + size, len(data))
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
        pieces.append(data[at:end].decode())
        at = end
    pieces = pieces or [""]
    base = {
        "__tywrap_frame__": "chunk",
        "frameProtocol": FRAME,
        "stream": "response",
        "id": id,
        "seq": 0,
        "total": len(pieces),
        "totalBytes": len(data),
        "encoding": "utf8-slice",
        "data": "",
    }
    return [{**base, "seq": seq, "data": piece, **change} for seq, piece in enumerate(pieces)]


def answer_text(id, result):
    return json.dumps({"id": id, "protocol": PROTOCOL, "result": result})


def say(message, id=None):
    text = json.dumps(message)
    if len(text) <= MAX:
        return write(text)
    for frame in frames(message["id"] if id is None else id, text):
        write(json.dumps(frame))


def answer(id, result):
    say({"id": id, "protocol": PROTOCOL, "result": result})


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.005)


def halves(id, result, size=8):
    return frames(id, answer_text(id, result), size)


def dump(all_frames):
    for frame in all_frames:
        write(json.dumps(frame))


def two(id, **change):
    """An answer in two frames, the second of which may be changed."""
    text = json.dumps({"id": id, "protocol": PROTOCOL, "result": "R"}, separators=(",", ":"))
    first, second = frames(id, text, (len(text) + 1) // 2)
    return [first, {**second, **change}]


def scenario(name, id, late_path=None):
    """What the recorded host was confronted with. True: it has been answered."""
    plain = json.dumps({"id": id, "protocol": PROTOCOL, "result": "R"}, separators=(",", ":"))
    if name == "ok_two_frames":
        dump(two(id))
    elif name == "ok_out_of_order":
        dump(reversed(two(id)))
    elif name == "ok_total_1":
        dump(frames(id, plain, 1000))
    elif name == "blank_lines_in_a_burst":
        first, second = (json.dumps(frame) for frame in two(id))
        write(first + "\n  \n\u2003\n" + second)
    elif name == "no_protocol":
        write('{"id":%d,"result":"R"}' % id)
    elif name == "ok_oversized_slice":
        dump(frames(id, plain.replace("R", "R" * 200), 1000))
    elif name == "plain_longer_than_max":
        write(plain.replace("R", "R" * 400))
    elif name == "plain_over_ceiling":
        write(plain.replace("R", "R" * 4000))
    elif name == "nested_frame":
        inner = json.dumps(frames(id, plain, 1000)[0])
        dump(frames(id, inner, 100))
    elif name == "logical_id_other":
        dump(frames(id, plain.replace('"id":%d' % id, '"id":999'), 20))
    elif name == "frame_id_other":
        dump(frames(id + 500, plain, 20))
    elif name == "dup_seq":
        dump([two(id)[0], two(id)[0]])
    elif name == "total_mismatch":
        dump(two(id, total=3))
    elif name == "bytes_mismatch":
        dump([{**frame, "totalBytes": frame["totalBytes"] + 1} for frame in two(id)])
    elif name == "wrong_protocol":
        dump(frames(id, plain, 1000, frameProtocol="tywrap-frame/2"))
    elif name == "wrong_stream":
        dump(frames(id, plain, 1000, stream="request"))
    elif name == "error_frame":
        dump(frames(id, "", 1000, __tywrap_frame__="error"))
    elif name == "error_frame_no_id":
        write('{"__tywrap_frame__":"error","frameProtocol":"tywrap-frame/1"}')
    elif name == "over_cap":
        dump(frames(id, plain, 1000, totalBytes=1000000000, total=2))
    elif name == "pollution":
        write("hello from print")
        return False
    elif name == "blank_lines":
        # Lines of white space count as blank too, also of characters that only JavaScript or Python strip.
        OUT.write("\n\r\n   \n\t\r\n\u00a0\u3000\n\ufeff\n".encode())
        return False
    elif name == "crlf":
        write(plain + "\r")
    elif name == "empty_message":
        dump(frames(id, ""))
    elif name == "unknown_id":
        write('{"id":12345,"result":1}')
    elif name == "id_minus_1":
        write('{"id":-1,"protocol":"tywrap/1","error":{"type":"X","message":"y"}}')
    elif name == "exit_0":
        os._exit(0)
    elif name == "exit_3":
        sys.stderr.write("dying now\n")
        sys.stderr.flush()
        os._exit(3)
    elif name == "partial_then_exit":
        dump(two(id)[:1])
        os._exit(0)
    elif name == "silent":
        pass
    elif name in ("late_frames", "late_plain"):
        lines = [json.dumps(frame) for frame in two(id)] if name == "late_frames" else ["", plain]
        write(lines[0])
        # Waits until the host has given up the call.
        wait_for(late_path)
        write(lines[1])
    elif name == "raw_utf8_big":
        text = plain.replace("R", "中" * 200010)
        for frame in frames(id, text):
            write(json.dumps(frame, ensure_ascii=False))
    elif name == "lone_surrogate":
        data = '{"id":%d,"result":"\ud83d0123456789AB"}' % id
        dump([{**frames(id, "x")[0], "data": data, "totalBytes": len(data) + 2}])
    else:
        raise ValueError(name)
    return True


def call(id, function, args, kwargs):
    if function == "echo":
        answer(id, args[0])
    elif function == "kwargs":
        answer(id, kwargs)
    elif function == "pid":
        answer(id, {"pid": os.getpid(), "gen": 0})
    elif function == "about":
        answer(id, {"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(), "python": sys.executable})
    elif function == "size":
        answer(id, len(args[0]))
    elif function == "fill":
        answer(id, args[1] * args[0])
    elif function == "raise":
        sys.stderr.write("\x1b[31mabout to raise\x1b[0m\n")
        sys.stderr.flush()
        body = {"type": "ValueError", "message": args[0], "traceback": "Traceback:\n  here\n"}
        say({"id": id, "protocol": PROTOCOL, "error": body})
    elif function == "raw":
        write(args[0])
    elif function == "wait":
        # Waits until the test creates a file.
        open(args[0] + ".half", "w").close()
        wait_for(args[0])
        answer(id, "x" * args[1] if len(args) > 1 else "waited")
    elif function == "tail":
        # Sends half of the frames, and the rest once the test creates a file.
        all_frames = halves(id, "x" * args[1], max(1, args[1] // args[2]))
        dump(all_frames[: len(all_frames) // 2])
        open(args[0] + ".half", "w").close()
        wait_for(args[0])
        dump(all_frames[len(all_frames) // 2 :])
    elif function == "print":
        write(args[0])
        answer(id, "printed")
    elif function == "die":
        if args[0] == "response":
            all_frames = halves(id, "x" * 1000)
            dump(all_frames[: len(all_frames) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    elif function == "deaf":
        # Answers, then reads nothing more and ignores SIGTERM.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        answer(id, os.getpid())
        while True:
            time.sleep(60)
    elif function == "child":
        child = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL)
        answer(id, child.pid)
    elif function == "stderr":
        sys.stderr.write("x" * args[0])
        sys.stderr.flush()
        answer(id, None)
    elif not scenario(function, id, *args[:1]):
        answer(id, {"pid": os.getpid(), "gen": 0})


def meta(id):
    mode = os.environ.get("TEST_META", "0.9")
    result = {
        "protocol": PROTOCOL,
        "protocolVersion": 1,
        "bridge": "python-subprocess",
        "pythonVersion": "3",
        "pid": os.getpid(),
        "codecFallback": "none",
        "arrowAvailable": False,
        "instances": 0,
    }
    transport = {"frameProtocol": FRAME, "supportsChunking": True, "maxFrameBytes": 64}
    if mode == "0.8":
        result["transport"] = transport
    elif mode == "off":
        result["transport"] = {**transport, "supportsChunking": False}
    elif mode == "other":
        result["transport"] = {**transport, "frameProtocol": "tywrap-frame/2"}
    elif mode == "garbage":
        result = [1]
    elif mode == "error":
        return say({"id": id, "protocol": PROTOCOL, "error": {"type": "E", "message": "what?"}})
    elif mode == "silent":
        return None
    elif mode == "late":
        # Answers this call together with the first later one.
        global late
        late = lambda: answer(id, result)
        return None
    elif mode == "exit":
        sys.stderr.write("no module named tywrap\n")
        sys.stderr.flush()
        os._exit(1)
    elif mode == "banner":
        write("Welcome!")
    elif mode == "dict":
        write("{'ready': True}")
    answer(id, result)


late = None
partial = {}


def request(text):
    global late
    message = json.loads(text)
    if message["method"] == "meta":
        return meta(message["id"])
    if late:
        late()
        late = None
    params = message["params"]
    call(message["id"], params["functionName"], params.get("args", []), params.get("kwargs"))


def main():
    while line := sys.stdin.buffer.readline():
        message = json.loads(line)
        if "__tywrap_frame__" not in message:
            partial.clear()
            request(line)
            continue
        id, seq = message["id"], message["seq"]
        die_at = os.environ.get("TEST_DIE_AT_FRAME")
        if die_at and seq == int(die_at):
            os.kill(os.getpid(), signal.SIGKILL)
        if seq == 0:
            partial.clear()
        pieces = partial.setdefault(id, [])
        if len(pieces) != seq:
            sys.stderr.write("a frame is missing\n")
            sys.exit(0)
        pieces.append(message["data"])
        if len(pieces) == message["total"]:
            text = "".join(partial.pop(id))
            assert len(text.encode()) == message["totalBytes"]
            request(text)


main()
