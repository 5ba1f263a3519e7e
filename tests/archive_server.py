"""A local server that drops, ignores, lies and changes its mind, and the zip that it serves."""

import hashlib
import io
import random
import re
import time
import zipfile
from collections import namedtuple
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from segconf.data.archives import Archive
from segconf.data.download import download_archives

NAME = "ISIC-2017_Validation_Data"
Seen = namedtuple("Seen", "method path range if_range sent")
Usage = namedtuple("Usage", "total used free")


def noise(seed, length):
    """Bytes that do not compress, like JPEG."""
    return random.Random(seed).randbytes(length)  # noqa: S311 - not cryptography


FILES = {f"ISIC_{i:07d}.jpg": noise(i, 20_000) for i in range(4)}


def zipped(files, top=f"{NAME}/"):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in files.items():
            bundle.writestr(name if isinstance(name, zipfile.ZipInfo) else top + name, content)
    return buffer.getvalue()


ZIP = zipped(FILES)
HALF = len(ZIP) // 2


@dataclass
class Reply:
    """One answer; `cut` drops the connection early, `shift` misplaces a continuation."""

    body: bytes = ZIP
    status: int = 200
    etag: str | None = '"one"'
    ranges: bool = True
    if_range: bool = True
    shift: int = 0
    pause: float = 0
    cut: int | None = None
    length: bool = True


class Handler(BaseHTTPRequestHandler):
    def do_HEAD(self):
        if self.server.head == "drop":
            self.note(0)
            return
        self.send_response(200 if self.server.head == "ok" else 405)
        self.send_header("Content-Length", str(len(ZIP)))
        self.note(0)
        self.end_headers()

    def do_GET(self):
        reply = self.server.replies.pop(0) if self.server.replies else Reply()
        body, status = reply.body, reply.status
        if status != 200:
            body = b"sorry"
        asked = self.headers["Range"] if reply.ranges else None
        same = not reply.if_range or self.headers["If-Range"] in (None, reply.etag)
        if asked and status == 200 and same:
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) + reply.shift
            status = 206 if start < len(body) else 416
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            body = body[start:]
        if status == 416:
            body = b""
        if reply.etag:
            self.send_header("ETag", reply.etag)
        if reply.length:
            self.send_header("Content-Length", str(len(body)))
        sent = body[: reply.cut]
        self.note(len(sent))  # before the client can act on the answer
        self.end_headers()
        try:
            self.wfile.write(sent)
            time.sleep(reply.pause)
        except ConnectionError:
            return  # the client was interrupted

    def note(self, sent):
        fields = (self.command, self.path, self.headers["Range"], self.headers["If-Range"], sent)
        self.server.seen.append(Seen(*fields))

    def log_message(self, *args):
        """Keep the test output clean."""


class Server(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.head, self.replies, self.seen = "ok", [], []
        self.url = f"http://127.0.0.1:{self.server_port}"

    @property
    def gets(self):
        return [seen for seen in self.seen if seen.method == "GET"]


def archive_at(url, body=ZIP, name=NAME):
    md5 = hashlib.md5(body, usedforsecurity=False).hexdigest()
    return Archive(name, f"{url}/{name}.zip", md5, size_hint=7_000)


def get(folder, source, **options):
    """Download one archive without waiting; `source` is a server or an archive."""
    archive = source if isinstance(source, Archive) else archive_at(source.url)
    return download_archives(folder, archives=[archive], **{"sleep": lambda _: None, **options})


def contents(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.*")}


def assert_complete(folder):
    """The images are there, and nothing else is: no part, note, zip or temporary folder."""
    assert contents(folder) == {f"{NAME}/{name}": content for name, content in FILES.items()}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def interrupt_at(stage, done):
    def on_progress(progress):
        if progress.stage == stage and progress.done >= done:
            raise KeyboardInterrupt

    return on_progress
