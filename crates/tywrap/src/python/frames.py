"""Requests in pieces (tywrap-frame/1): part of the bridge, which is made of these files in a row."""

import json

FRAME_PROTOCOL = "tywrap-frame/1"
MAX_SAFE = 2**53 - 1

# Bounds on unfinished requests, whatever sizes they declare.
MAX_STREAMS = 1024
MAX_PIECES = 1 << 20


class RequestTooLargeError(Exception):
    """A request above the limit."""


class FrameError(Exception):
    """A frame that breaks a rule: from here on nobody knows what belongs to what."""

    def __str__(self):
        return ": ".join(self.args)


class Burst:
    """One request on its way as pieces."""

    def __init__(self, total, total_bytes):
        self.total = total
        self.total_bytes = total_bytes
        self.pieces = {}
        self.size = 0


class Reassembler:
    """Puts requests together. Pieces of one request come without anything in between."""

    def __init__(self, largest):
        self.largest = largest
        self.bursts = {}
        self.size = 0
        self.count = 0
        # The refused burst: id, total, bytes, how many of its pieces are still to come, whether 0 came.
        self.refused = None

    def clear(self):
        """The host began something else: what is unfinished will stay so."""
        if self.bursts:
            self.bursts.clear()
            self.size = self.count = 0
        self.refused = None

    def accept(self, frame):
        """Takes a frame; gives the request once it is whole."""
        mid, seq, total, total_bytes, data = check_frame(frame)
        if self.refused is not None and self.is_refused(mid, seq, total, total_bytes):
            return None
        burst = self.bursts.get(mid)
        if burst is None:
            if seq == 0:
                self.clear()
            if len(self.bursts) >= MAX_STREAMS:
                raise FrameError("FRAME_TOO_MANY_STREAMS", "%d are unfinished" % MAX_STREAMS)
            if total_bytes > self.largest or total > MAX_PIECES:
                self.refused = [mid, total, total_bytes, total - 1, seq == 0]
                raise too_large(total_bytes, self.largest, total)
            burst = self.bursts[mid] = Burst(total, total_bytes)
        elif burst.total != total or burst.total_bytes != total_bytes:
            raise FrameError(
                "FRAME_INCONSISTENT",
                "request %d began as %d pieces of %d bytes and goes on as %d of %d"
                % (mid, burst.total, burst.total_bytes, total, total_bytes),
            )
        if seq in burst.pieces:
            raise FrameError("FRAME_DUPLICATE_SEQ", "piece %d of request %d again" % (seq, mid))
        size = byte_length(data)
        burst.size += size
        self.size += size
        self.count += 1
        if burst.size > total_bytes:
            text = "request %d has more than the %d bytes that it declares" % (mid, total_bytes)
            raise FrameError("FRAME_BYTES_MISMATCH", text)
        if self.size > self.largest or self.count > MAX_PIECES:
            text = "unfinished requests hold %d bytes in %d pieces" % (self.size, self.count)
            raise FrameError("FRAME_PAYLOAD_TOO_LARGE", text)
        burst.pieces[seq] = data
        if len(burst.pieces) < total:
            return None
        del self.bursts[mid]
        self.size -= burst.size
        self.count -= total
        if burst.size != total_bytes:
            text = "request %d has %d bytes and declares %d" % (mid, burst.size, total_bytes)
            raise FrameError("FRAME_BYTES_MISMATCH", text)
        # There are `total` different numbers, all below `total`: no piece is missing.
        pieces = burst.pieces
        return "".join([pieces[seq] for seq in range(total)])

    def is_refused(self, mid, seq, total, total_bytes):
        """Whether this is a late piece of what was answered already."""
        known = self.refused
        again = seq == 0 and known[4]
        if known[:3] != [mid, total, total_bytes] or known[3] == 0 or again:
            self.refused = None
            return False
        known[3] -= 1
        known[4] = known[4] or seq == 0
        return True


def check_frame(frame):
    """The members of a frame, checked in the order that real receivers have."""

    def malformed(name, expected):
        return FrameError("FRAME_MALFORMED", "`%s` must be %s" % (name, expected))

    if frame.get("__tywrap_frame__") != "chunk":
        raise malformed("__tywrap_frame__", '"chunk"')
    if frame.get("frameProtocol") != FRAME_PROTOCOL:
        raise FrameError("FRAME_UNKNOWN_PROTOCOL", "`frameProtocol` must be " + FRAME_PROTOCOL)
    stream = frame.get("stream")
    if stream != "request" and stream != "response":
        raise malformed("stream", '"request" or "response"')
    if frame.get("encoding") != "utf8-slice":
        raise malformed("encoding", '"utf8-slice"')
    mid, seq = frame.get("id"), frame.get("seq")
    total, total_bytes = frame.get("total"), frame.get("totalBytes")
    # Exactly int: true and 1.0 are not accepted.
    if type(mid) is not int or not -MAX_SAFE <= mid <= MAX_SAFE:
        raise malformed("id", "an integer within 2^53 - 1 of 0")
    if type(seq) is not int or seq < 0:
        raise malformed("seq", "an integer from 0")
    if type(total) is not int or total < 1:
        raise malformed("total", "an integer from 1")
    if type(total_bytes) is not int or total_bytes < 0:
        raise malformed("totalBytes", "an integer from 0")
    data = frame.get("data")
    if type(data) is not str:
        raise malformed("data", "a string")
    if seq >= total:
        raise malformed("seq", "below `total`")
    if stream != "request":
        raise FrameError("FRAME_WRONG_STREAM", "a bridge takes requests")
    return mid, seq, total, total_bytes, data


def byte_length(text):
    """The bytes of a text in UTF-8."""
    # Whether a text is ASCII is known without looking at its characters.
    if text.isascii():
        return len(text)
    try:
        return len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise FrameError("FRAME_INVALID_UTF8", "half a character (a lone surrogate)") from None


def too_large(size, largest, pieces=0):
    """What a request above the limit is told."""
    if pieces > MAX_PIECES:
        text = "Request of %d pieces is over %d; use larger frames"
        return RequestTooLargeError(text % (pieces, MAX_PIECES))
    text = "Request of %d bytes is over TYWRAP_REQUEST_MAX_BYTES=%d; send less or raise it"
    return RequestTooLargeError(text % (size, largest))


