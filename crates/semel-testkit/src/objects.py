"""A small object store for tests: S3's and GCS's way of speaking, each object a synced file.

It serves one request at a time, keeps every condition, and has on disk what it answered. `objects.py PORT FOLDER`; with
`racy` as a third word it looks at a condition first and writes in a second step, as some services do.
"""
import hashlib, json, os, socketserver, sys, threading, time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

FOLDER, TURN, OBJECTS = sys.argv[2], threading.Lock(), {}
RACY = "racy" in sys.argv[3:]


def now():
    """The time of this store, which a test may set ahead by a file beside its folder."""
    try:
        with open(FOLDER + ".ahead") as file:
            return time.time() + float(file.read())
    except OSError:
        return time.time()


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def file_of(name):
    return os.path.join(FOLDER, hashlib.sha256(name.encode()).hexdigest())


def keep(name, meta, body):
    path = file_of(name)
    with open(path + ".new", "wb") as file:
        file.write(json.dumps([name, meta]).encode() + b"\n" + body)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".new", path)
    sync(FOLDER)
    OBJECTS[name] = (meta, body)


def read_all():
    os.makedirs(FOLDER, exist_ok=True)
    for entry in os.listdir(FOLDER):
        if not entry.endswith(".new"):
            with open(os.path.join(FOLDER, entry), "rb") as file:
                name, meta = json.loads(file.readline())
                OBJECTS[name] = (meta, file.read())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "semel-objects"
    # an answer is sent in one piece, at once
    disable_nagle_algorithm = True
    wbufsize = -1

    def date_time_string(self, timestamp=None):
        return formatdate(int(now()) if timestamp is None else timestamp, usegmt=True)

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", meta=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if meta:
            self.send_header("ETag", meta["etag"])
            self.send_header("x-goog-generation", str(meta["generation"]))
            self.send_header("Last-Modified", formatdate(meta["time"], usegmt=True))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, status, code):
        self.answer(status, f"<Error><Code>{code}</Code></Error>".encode())

    def where(self):
        url = urlsplit(self.path)
        return unquote(url.path).lstrip("/").partition("/")[2], parse_qs(url.query)

    def refused(self, found):
        """Is a condition of this request not met?"""
        tag, generation = (found[0]["etag"], found[0]["generation"]) if found else (None, 0)
        wanted = self.headers.get("x-goog-if-generation-match")
        if wanted is not None and int(wanted) != generation:
            return True
        if self.headers.get("If-None-Match") == "*" and found:
            return True
        wanted = self.headers.get("If-Match")
        return wanted is not None and wanted != tag

    def do_PUT(self):
        name, _ = self.where()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if RACY and self.refused(OBJECTS.get(name)):
            return self.fail(412, "PreconditionFailed")
        with TURN:
            if not RACY and self.refused(OBJECTS.get(name)):
                return self.fail(412, "PreconditionFailed")
            etag = '"%s"' % hashlib.md5(body).hexdigest()
            meta = {"etag": etag, "generation": time.time_ns(), "time": int(now())}
            keep(name, meta, body)
        self.answer(200, meta=meta)

    def do_GET(self):
        name, query = self.where()
        if not name:
            return self.list(query)
        with TURN:
            found = OBJECTS.get(name)
        if not found:
            return self.fail(404, "NoSuchKey")
        self.answer(200, found[1], found[0])

    def do_DELETE(self):
        name, _ = self.where()
        with TURN:
            found = OBJECTS.get(name)
            if self.refused(found):
                return self.fail(412, "PreconditionFailed")
            if found:
                os.unlink(file_of(name))
                sync(FOLDER)
                del OBJECTS[name]
        self.answer(204)

    def list(self, query):
        one = lambda name, default="": query.get(name, [default])[0]
        prefix, most = one("prefix"), int(one("max-keys", "1000"))
        after = max(one("start-after"), one("continuation-token"))
        with TURN:
            names = sorted(name for name in OBJECTS if name.startswith(prefix) and name > after)
            rows = [(name, OBJECTS[name][0], len(OBJECTS[name][1])) for name in names[:most]]
        stamp = lambda meta: time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(meta["time"]))
        contents = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>{stamp(meta)}</LastModified>"
            f"<ETag>{escape(meta['etag'])}</ETag><Size>{size}</Size></Contents>"
            for name, meta, size in rows
        )
        more = f"<NextContinuationToken>{escape(rows[-1][0])}</NextContinuationToken>" if len(names) > most else ""
        text = f"<ListBucketResult>{contents}<IsTruncated>{str(bool(more)).lower()}</IsTruncated>{more}</ListBucketResult>"
        self.answer(200, text.encode())


class Server(socketserver.ThreadingMixIn, HTTPServer):
    daemon_threads = True
    request_queue_size = 1024


read_all()
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
