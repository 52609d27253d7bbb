"""The Python side of tywrap/1: runs functions for a host that writes to our standard input.

One JSON message a line, or in pieces (tywrap-frame/1) where it is larger than a frame.
Needs nothing but Python 3.9 or later. Trusts its host: an allow-list bounds what it may import.
The last part of the bridge, which is made of values.py, frames.py and this file in a row.
"""

import importlib
import json
import os
import sys
import traceback
import types

PROTOCOL = "tywrap/1"

# The largest request if the host sets no limit.
REQUEST_MAX = 1 << 30
# Room in a line for the members of a frame other than its data.
ENVELOPE = 1024
READ_STEP = 1 << 18
WRITE_STEP = 1 << 20
# How much of an error's text is sent.
MAX_TEXT = 1 << 16


class ConfigError(Exception):
    """Settings that cannot be used."""


class PayloadTooLargeError(Exception):
    """A response above the limit."""


class ImportNotAllowedError(PermissionError):
    """A module that is not on the list."""


class AttributeNotAllowedError(PermissionError):
    """A name that begins with an underscore."""


# ---- settings


class Settings:
    """What the host asked for, by arguments and environment."""

    def __init__(self, argv, env):
        asked = []
        if "--tywrap-max-frame-bytes" in argv:
            at = argv.index("--tywrap-max-frame-bytes") + 1
            asked.append(positive("--tywrap-max-frame-bytes", argv[at] if at < len(argv) else ""))
        # Hosts of version 0.8 negotiate frames by the environment, and expect the answer in `meta`.
        self.tells_transport = (
            env.get("TYWRAP_TRANSPORT_CHUNKING") == "1"
            and env.get("TYWRAP_TRANSPORT_FRAME_PROTOCOL") == FRAME_PROTOCOL
        )
        if self.tells_transport:
            name = "TYWRAP_TRANSPORT_MAX_FRAME_BYTES"
            asked.append(positive(name, env.get(name, "")))
        # A host that asked for no frames gets each response as one line, whatever its length.
        self.frame = min(asked) if asked else None
        self.request = limit(env, "TYWRAP_REQUEST_MAX_BYTES") or REQUEST_MAX
        self.response = limit(env, "TYWRAP_CODEC_MAX_BYTES")
        # A frame's line is longer than its data, since JSON escapes characters.
        escaped = 3 * self.request
        if self.frame is not None:
            escaped = min(escaped, 6 * self.frame)
        self.line = max(self.request, escaped) + ENVELOPE
        names = env.get("TYWRAP_ALLOWED_MODULES", "").replace(",", " ").split()
        self.allowed = frozenset(names) or None
        # Arrays are sent as Arrow unless the host wants JSON, or pyarrow is not installed.
        self.arrow = env.get("TYWRAP_CODEC_FALLBACK", "").lower() != "json"
        private = env.get("TYWRAP_ALLOW_PRIVATE_ATTRS", "").strip().lower()
        self.private = private in ("1", "true", "yes")


def positive(name, text):
    """A positive number, as a setting."""
    # int() alone would accept spaces, signs and underscores.
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) > 0):
        raise ConfigError("%s must be a positive integer, not %r" % (name, text[:64]))
    return int(text)


def limit(env, name):
    """An optional number of the environment; one that is not positive sets no limit."""
    text = env.get(name, "").strip()
    if not text:
        return None
    digits = text[1:] if text[0] in "+-" else text
    if not (digits.isascii() and digits.isdigit()):
        raise ConfigError("%s must be an integer, not %r" % (name, text[:64]))
    if text[0] == "-" or not digits.strip("0"):
        return None
    return int(digits) if len(digits) < 16 else MAX_SAFE


# ---- calls


# The decoder of requests, which hold nothing but JSON and bytes.
REQUESTS = Values(False)


def shown(value):
    """The beginning of a value, for an error."""
    text = repr(value)
    return text if len(text) <= 64 else text[:64] + "..."


def read_request(text):
    """The id, method and parameters of a whole request."""
    if may_hold_bytes(text):
        try:
            message = parse(REVIVING, text)
        except ProtocolError as error:
            # Parsed again for the id, so that only this call fails.
            raise ProtocolError(str(error), known_id(parse(PLAIN, text))) from None
    else:
        message = parse(PLAIN, text)
    if type(message) is not dict:
        raise ProtocolError("the request is no JSON object")
    mid, protocol, params = message.get("id"), message.get("protocol"), message.get("params")
    if protocol != PROTOCOL:
        raise ProtocolError(
            "Invalid protocol: %s is not %s" % (shown(protocol), PROTOCOL), known_id(message)
        )
    if type(mid) is not int or not -MAX_SAFE <= mid <= MAX_SAFE:
        raise ProtocolError("`id` must be an integer within 2^53 - 1 of 0")
    if "\\u" in text and REQUESTS.has_half_characters(message):
        raise ProtocolError("half a character (a lone surrogate) cannot be kept", mid)
    if params is None:
        params = {}
    elif type(params) is not dict:
        raise ProtocolError("`params` must be an object", mid)
    return mid, message.get("method"), params


def check_allowed(name, allowed):
    """Refuses a module that is not on the list."""
    if name not in allowed:
        text = "module %r is not allowed; add it to TYWRAP_ALLOWED_MODULES"
        raise ImportNotAllowedError(text % name)


def is_installed(name):
    """Whether a module could be imported."""
    import importlib.util

    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, AttributeError, ValueError):
        return False


def known_id(message):
    """The id of a request, if that much can be read."""
    mid = message.get("id") if type(message) is dict else None
    return mid if type(mid) is int and -MAX_SAFE <= mid <= MAX_SAFE else UNKNOWN_ID


class Bridge:
    """Answers requests, one after the other."""

    def __init__(self, settings, write):
        self.settings = settings
        self.write = write
        self.requests = Reassembler(settings.request)
        self.values = Values(settings.arrow)
        self.modules = {}

    def take_line(self, line):
        """Handles one line without its end; None is the end of all."""
        if line is None:
            return False
        try:
            request = self.read(line)
        except (ProtocolError, RequestTooLargeError) as error:
            self.fail(getattr(error, "mid", UNKNOWN_ID), error)
            return True
        except (ValueError, RecursionError, MemoryError) as error:
            # Not JSON, or JSON that Python cannot represent.
            self.requests.clear()
            if isinstance(error, UnicodeDecodeError):
                error = ProtocolError("the line is not UTF-8: " + error.reason)
            self.fail(UNKNOWN_ID, error)
            return True
        # Dropped, so that a large request is not held as text while it runs.
        line = None
        if request is None:
            return True
        mid, method, params = request
        request = None
        try:
            if method == "call":
                self.run(mid, params)
            elif method == "meta":
                self.reply(mid, self.meta())
            else:
                raise ProtocolError('`method` must be "call" or "meta", not %s' % shown(method))
        except ProtocolError as error:
            self.fail(mid, error)
        return True

    def fail(self, mid, error):
        """Answers what could not be run."""
        note(error)
        self.reply_error(mid, error, None)

    def read(self, line):
        """The request of a line: its id, method and parameters. None while it is not whole."""
        # Looks for the names of frame members before parsing: most requests are not frames.
        if b'"__tywrap_frame__"' in line or b'"frameProtocol"' in line:
            frame = parse(PLAIN, line.decode("utf-8"))
            if type(frame) is dict and ("__tywrap_frame__" in frame or "frameProtocol" in frame):
                text = self.requests.accept(frame)
                return None if text is None else read_request(text)
        self.requests.clear()
        if len(line) > self.settings.request:
            raise too_large(len(line), self.settings.request)
        return read_request(line.decode("utf-8"))

    def run(self, mid, params):
        """Calls a function."""
        module, function = params.get("module"), params.get("functionName")
        args, kwargs = params.get("args"), params.get("kwargs")
        if type(module) is not str or not module:
            raise ProtocolError("`module` must be a string that is not empty")
        if type(function) is not str or not function:
            raise ProtocolError("`functionName` must be a string that is not empty")
        if args is None:
            args = ()
        elif type(args) is not list:
            raise ProtocolError("`args` must be an array")
        if kwargs is None:
            kwargs = {}
        elif type(kwargs) is not dict:
            raise ProtocolError("`kwargs` must be an object")
        params.clear()
        try:
            result = self.find(module, function)(*args, **kwargs)
        except KeyboardInterrupt:
            raise
        # Even SystemExit fails only this call and does not end the bridge.
        except BaseException as error:
            self.reply_error(mid, error, told_trace(error))
            return
        args = kwargs = None
        self.reply(mid, result)

    def find(self, name, path):
        """The function of a module, by a dotted path."""
        allowed = self.settings.allowed
        if allowed is not None:
            check_allowed(name, allowed)
        found = self.modules.get(name)
        # A module is imported only once, unless `sys.modules` has another one by now.
        if found is None or sys.modules.get(name) is not found:
            found = self.modules[name] = importlib.import_module(name)
        for part in path.split(".") if "." in path else (path,):
            if part.startswith("_") and not self.settings.private:
                raise AttributeNotAllowedError(
                    "attribute %r is private and not allowed; "
                    "set TYWRAP_ALLOW_PRIVATE_ATTRS=1 to allow such" % part
                )
            found = getattr(found, part)
            # A module is not allowed merely because an allowed module imported it.
            if allowed is not None and isinstance(found, types.ModuleType):
                check_allowed(found.__name__, allowed)
        return found

    def meta(self):
        """What this bridge is."""
        meta = {
            "protocol": PROTOCOL,
            "protocolVersion": 1,
            "bridge": "python-subprocess",
            "pythonVersion": "%d.%d.%d" % sys.version_info[:3],
            "pid": os.getpid(),
            "codecFallback": "none" if self.settings.arrow else "json",
            "arrowAvailable": is_installed("pyarrow"),
            # False even if they are installed: this bridge cannot send their values.
            "scipyAvailable": False,
            "torchAvailable": False,
            "sklearnAvailable": False,
            "instances": 0,
        }
        if self.settings.tells_transport:
            meta["transport"] = {
                "frameProtocol": FRAME_PROTOCOL,
                "supportsChunking": True,
                "maxFrameBytes": self.settings.frame,
            }
        return meta

    # ---- responses

    def reply(self, mid, result):
        """Writes a result."""
        message = {"id": mid, "protocol": PROTOCOL, "result": result}
        try:
            text = self.values.encode(message)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.reply_error(mid, error, None)
            return
        message = result = None
        most = self.settings.response
        if most is None or len(text) <= most:
            self.send(mid, text)
            return
        size, text = len(text), None
        error = PayloadTooLargeError(
            "Response of %d bytes is over TYWRAP_CODEC_MAX_BYTES=%d; return less or raise it"
            % (size, most)
        )
        self.reply_error(mid, error, None)

    def reply_error(self, mid, error, trace):
        """Writes what went wrong."""
        body = {"type": type(error).__name__, "message": told(error)}
        if trace is not None:
            body["traceback"] = trace
        self.send(mid, json.dumps({"id": mid, "protocol": PROTOCOL, "error": body}))

    def send(self, mid, text):
        """Writes a response, whole or in frames. It is ASCII: a character is a byte."""
        room = self.settings.frame
        if room is None or (len(text) <= room and room >= 4):
            self.write_line(text)
            return
        if room < 4:
            text = "FRAME_BAD_MAX_BYTES: frames of %d bytes; 4 are the least" % room
            body = {"type": "FrameError", "message": text}
            self.write_line(json.dumps({"id": mid, "protocol": PROTOCOL, "error": body}))
            return
        size = len(text)
        head = (
            '{"__tywrap_frame__": "chunk", "frameProtocol": "tywrap-frame/1", '
            '"stream": "response", "id": %d, "seq": ' % mid
        )
        middle = ', "total": %d, "totalBytes": %d, "encoding": "utf8-slice", "data": '
        middle %= (-(-size // room), size)
        escape = json.encoder.encode_basestring_ascii
        for seq, at in enumerate(range(0, size, room)):
            frame = "".join((head, str(seq), middle, escape(text[at : at + room]), "}\n"))
            self.write(frame.encode("ascii"))

    def write_line(self, text):
        """Writes a line; a long one in slices, so that it is not held twice more."""
        if len(text) > WRITE_STEP:
            last = len(text) // WRITE_STEP * WRITE_STEP
            for at in range(0, last, WRITE_STEP):
                self.write(text[at : at + WRITE_STEP].encode("ascii"))
            text = text[last:]
        self.write((text + "\n").encode("ascii"))


def told(error):
    """The text of an error: whatever it is, it can be sent."""
    try:
        text = str(error)
    except BaseException as inner:
        text = "an error whose text cannot be read: " + type(inner).__name__
    if len(text) > MAX_TEXT:
        text = text[:MAX_TEXT] + "..."
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def told_trace(error):
    """Where an error came from, without our own frames; the end of it says most."""
    try:
        trace = error.__traceback__
        ours = (Bridge.run.__code__, Bridge.find.__code__, check_allowed.__code__)
        while trace is not None and trace.tb_frame.f_code in ours:
            trace = trace.tb_next
        text = "".join(traceback.format_exception(type(error), error, trace))
    except BaseException:
        return None
    if len(text) > MAX_TEXT:
        text = "..." + text[-MAX_TEXT:]
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def note(error):
    """A line on standard error, which the host keeps for its own errors."""
    try:
        sys.stderr.write("[tywrap] %s: %s\n" % (type(error).__name__, told(error)))
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass


# ---- standard streams


def take_streams():
    """The real standard streams, kept aside: called code may print and read what it likes."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:
        os.dup2(nothing, 1)
    os.close(nothing)
    # Python's own stdout object would buffer what is printed, apart from standard error.
    sys.stdin = open(0, "r", closefd=False)
    sys.stdout = sys.stderr
    return source, sink


def writer(sink):
    """Writes all of it, in one go where the system takes it."""

    def write(data):
        written = os.write(sink, data)
        if written < len(data):
            rest = memoryview(data)[written:]
            while rest:
                rest = rest[os.write(sink, rest) :]

    return write


def read_line(reader, bridge):
    """The next line without its end, None at the end of the input. One that is too long is answered."""
    longest = bridge.settings.line
    while True:
        line = reader.readline(longest)
        if not line:
            return None
        if len(line) < longest or line[-1] == 10:
            line = line.rstrip(b"\r\n")
            if not is_blank(line):
                return line
            continue
        size = len(line)
        line = None
        while True:
            rest = reader.readline(READ_STEP)
            size += len(rest)
            if not rest or rest[-1] == 10:
                break
        bridge.requests.clear()
        bridge.fail(UNKNOWN_ID, too_large(size, bridge.settings.request))


def is_blank(line):
    """Whether a line is nothing but white space, of any alphabet."""
    if not line or line.isspace():
        return True
    # A message begins with a brace; only non-ASCII white space needs its characters decoded.
    if 0x20 < line[0] < 0x80:
        return False
    try:
        return line.decode("utf-8").isspace()
    except UnicodeDecodeError:
        return False


def serve(bridge, source):
    """Reads lines to the end of the input."""
    with open(source, "rb", buffering=READ_STEP) as reader:
        # The line is not kept here, so that its memory is free while the request runs.
        while bridge.take_line(read_line(reader, bridge)):
            pass


def import_from_here():
    """Finds modules of the working directory, also where the bridge is a script elsewhere."""
    try:
        here = os.getcwd()
    except OSError:
        return
    if "" not in sys.path and here not in sys.path:
        sys.path.insert(0, here)


def main():
    """Serves until the input ends. 0: it did, or the host broke the framing."""
    try:
        import_from_here()
        settings = Settings(sys.argv[1:], os.environ)
        source, sink = take_streams()
        serve(Bridge(settings, writer(sink)), source)
    except FrameError as error:
        note(error)
    except (BrokenPipeError, ConnectionResetError):
        # The host has gone: there is nobody to report to.
        pass
    except (ConfigError, OSError) as error:
        note(error)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
