"""Values to and from JSON, in the original's forms: part of the bridge, which is made of these files
in a row."""

import base64
import binascii
import json
import sys

UNKNOWN_ID = -1
MAX_SAFE = 2**53 - 1
MAX_INT_DIGITS = 4300
# How deeply the containers of a result may be nested, as in the original.
MAX_DEPTH = 900
NESTING = frozenset((dict, list, tuple))
# How many classes of results are remembered.
MAX_CLASSES = 1000


class ProtocolError(Exception):
    """A request that breaks a rule of tywrap/1."""

    def __init__(self, text, mid=UNKNOWN_ID):
        super().__init__(text)
        self.mid = mid


# ---- requests


def bounded_int(text):
    """An integer, where Python itself does not bound the digits that it converts."""
    if len(text) > MAX_INT_DIGITS:
        raise ValueError("an integer has %d digits; the limit is %d" % (len(text), MAX_INT_DIGITS))
    return int(text)


def revive(members):
    """Bytes among the arguments: in the form of requests, or in that of results."""
    if members.get("__tywrap_bytes__") is True:
        name = "b64"
    elif members.get("__type__") == "bytes" and members.get("encoding") == "base64":
        name = "data"
    else:
        return members
    text = members.get(name)
    if type(text) is not str:
        raise ProtocolError("`%s` must be a string of base64" % name)
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ProtocolError("`%s` is no base64: %s" % (name, error)) from None


def may_hold_bytes(text):
    """Whether a request may have bytes among its arguments."""
    return "__tywrap_bytes__" in text or '"__type__"' in text


# NaN and Infinity are accepted, as in the original.
PARSE_INT = None if hasattr(sys, "get_int_max_str_digits") else bounded_int
PLAIN = json.JSONDecoder(parse_int=PARSE_INT)
REVIVING = json.JSONDecoder(parse_int=PARSE_INT, object_hook=revive)


def parse(decoder, text):
    """JSON to values. Without spaces around it the slow search for them is left out."""
    if text.startswith("{"):
        value, end = decoder.raw_decode(text)
        if end == len(text):
            return value
    return decoder.decode(text.strip())


# ---- results


def encoder(default):
    """A function of a value and 0 that returns the parts of its JSON.

    `JSONEncoder.encode` makes the same function anew for each value, which takes longer than writing a
    small one.
    """
    slow = json.JSONEncoder(allow_nan=False, default=default)
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is not None:
        try:
            escape = json.encoder.encode_basestring_ascii
            return make({}, default, escape, None, ": ", ", ", False, False, False)
        except TypeError:
            # This version of Python makes the encoder from other arguments.
            pass
    return lambda value, _: (slow.encode(value),)


class Values:
    """Writes results as JSON. Values that JSON does not have get the original's forms."""

    def __init__(self, arrow):
        # Whether arrays are sent as Arrow if pyarrow is installed.
        self.arrow = arrow
        self.changes = {}
        self.chunks = encoder(self.convert)
        self.raw_encoder = json.JSONEncoder(ensure_ascii=False, default=self.convert)

    def encode(self, message):
        """The text of a response."""
        try:
            text = "".join(self.chunks(message, 0))
        except BaseException as error:
            # A failed encoder still remembers the containers that it was in: make a new one.
            self.chunks = encoder(self.convert)
            if isinstance(error, RecursionError):
                raise too_deep() from None
            if isinstance(error, ValueError):
                raise explained(error) from None
            raise
        # A text has at least as many brackets as containers, and brackets are quickly counted.
        if text.count("[") + text.count("{") > MAX_DEPTH + 2 and is_too_deep(message["result"]):
            raise too_deep()
        if "\\ud" in text and self.has_half_characters(message):
            raise ValueError("the result holds half a character (a lone surrogate)")
        return text

    def has_half_characters(self, value):
        """Whether a value holds a lone surrogate. Not cheap: ask only where the text has escapes."""
        try:
            self.raw_encoder.encode(value).encode("utf-8")
        except UnicodeEncodeError:
            return True
        return False

    def convert(self, value):
        """A value that JSON does not have, as one that it has."""
        kind = type(value)
        change = self.changes.get(kind)
        if change is None:
            if len(self.changes) >= MAX_CLASSES:
                self.changes.clear()
            change = self.changes[kind] = self.change_of(value)
        return change(value)

    def change_of(self, value):
        """How values of this class are converted."""
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes_form
        if isinstance(value, classes("numpy", "ndarray")):
            return self.array_form
        if isinstance(value, classes("numpy", "generic")):
            return scalar_form
        if callable(getattr(value, "model_dump", None)):
            return model_form
        if isinstance(value, classes("datetime", "datetime", "date", "time")):
            return lambda value: value.isoformat()
        if isinstance(value, classes("datetime", "timedelta")):
            return lambda value: value.total_seconds()
        for module, name in (("decimal", "Decimal"), ("uuid", "UUID"), ("pathlib", "PurePath")):
            if isinstance(value, classes(module, name)):
                return str
        if isinstance(value, (set, frozenset)):
            return list
        return refuse

    def array_form(self, array):
        """An array of numpy."""
        if self.arrow:
            try:
                import pyarrow
            except (ImportError, OSError):
                pass
            else:
                return arrow_form(array, pyarrow)
        return json_form(array)


def classes(module, *names):
    """Classes of a module, if it is loaded: a value of theirs has loaded it."""
    found = [getattr(sys.modules.get(module), name, None) for name in names]
    return tuple(kind for kind in found if isinstance(kind, type))


def refuse(value):
    """A value that nobody has a form for."""
    text = "a value of type %s cannot be sent; return numbers, strings, bytes, lists and dicts"
    raise ValueError(text % type(value).__qualname__)


def bytes_form(value):
    """Bytes."""
    data = base64.b64encode(value).decode("ascii")
    return {"__type__": "bytes", "encoding": "base64", "data": data}


def scalar_form(value):
    """A number of numpy."""
    item = value.item()
    return refuse(value) if type(item) is type(value) else item


def model_form(value):
    """A model of pydantic, or what looks like one."""
    try:
        try:
            return value.model_dump(by_alias=True, mode="json")
        except TypeError:
            return value.model_dump(by_alias=True)
    except Exception as error:
        raise RuntimeError("model_dump failed: %s" % error) from error


def arrow_form(array, pyarrow):
    """An array as a table of Arrow with one column."""
    try:
        column = pyarrow.array(array if array.ndim == 1 else array.flatten())
        table = pyarrow.Table.from_arrays([column], names=["value"])
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    except Exception as error:
        text = "an array of %s cannot be sent as Arrow: %s"
        raise RuntimeError(text % (array.dtype, error)) from error
    return {
        "__tywrap__": "ndarray",
        "codecVersion": 1,
        "encoding": "arrow",
        "b64": base64.b64encode(sink.getvalue()).decode("ascii"),
        "shape": array.shape,
        "dtype": str(array.dtype),
    }


def json_form(array):
    """An array as nested lists, if it holds numbers that every reader of JSON keeps."""
    dtype = array.dtype
    fits = dtype.kind == "b" or dtype.kind in "iuf" and dtype.itemsize <= 8
    if not fits or not dtype.isnative:
        text = "an array of %s cannot be sent as JSON; convert it, with .astype(...) or .tolist()"
        raise RuntimeError(text % dtype)
    if dtype.kind in "iu" and array.size and (array.max() > MAX_SAFE or array.min() < -MAX_SAFE):
        text = "an array of %s holds integers beyond 2^53 - 1, which readers of JSON round; "
        raise RuntimeError((text + "convert it, with .astype(...) or .astype(str).tolist()") % dtype)
    return {
        "__tywrap__": "ndarray",
        "codecVersion": 1,
        "encoding": "json",
        "data": array.tolist(),
        "shape": array.shape,
        "dtype": dtype.name,
    }


def is_too_deep(value):
    """Whether containers are nested too deep: looks at one level after the other."""
    level = [value] if type(value) in NESTING else []
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) in NESTING
        ]
        if not level:
            return False
    return True


def too_deep():
    """What a result with too many containers within each other is told."""
    return RuntimeError("the result is nested deeper than %d; return it flatter" % MAX_DEPTH)


def explained(error):
    """What the JSON writer said, in clear words and with the original's class."""
    if type(error) is not ValueError:
        return error
    text = str(error)
    if text == "Circular reference detected":
        return RuntimeError("the result holds itself (a circular reference); return a copy without")
    if "not JSON compliant" in text:
        return ValueError(
            "the result holds NaN or Infinity, which JSON does not have; return None instead"
        )
    return error


