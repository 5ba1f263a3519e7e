"""A server for one reader on this machine: the review page saves into the prediction folder.

It listens on the loopback address only. Every address contains a random token, requests of other
pages are refused by their origin, and requests name cases, never files.
"""

import hmac
import json
import logging
import secrets
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

from segconf.errors import DataError, SegconfError
from segconf.files import read_bytes
from segconf.results.prediction_folder import PredictionFolder
from segconf.review.page import review_page
from segconf.review.store import ConflictError, ReviewStore

HOST = "127.0.0.1"
LARGEST_BODY = 64_000_000
"""Bytes of a request: a mask whose every pixel differs from its neighbour has 4 bytes per pixel."""
_SECONDS = 30
_JSON = "application/json; charset=utf-8"

logger = logging.getLogger(__name__)


class ReviewServer(ThreadingHTTPServer):
    """The page of a prediction folder, and its store."""

    daemon_threads = True

    def __init__(self, folder: PredictionFolder, *, port: int = 0) -> None:
        """Listen on a port of this machine; 0 takes any that is free.

        Raises:
            DataError: the folder is none, or the port is taken.
        """
        self.store = ReviewStore(folder)
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise DataError(
                f"port {port}: cannot be used ({error.strerror}). Choose another one."
            ) from error
        self.origin = f"http://{HOST}:{self.server_port}"

    @property
    def address(self) -> str:
        """Where the page is, for a browser."""
        return f"{self.origin}/{self.token}/review.html"


class _Refusal(Exception):  # noqa: N818 - an answer, not a failure
    """An answer other than 200."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: ReviewServer
    protocol_version = "HTTP/1.1"
    server_version = "segconf"
    sys_version = ""
    timeout = _SECONDS
    _FILES: ClassVar[dict[tuple[str, str], str]] = {
        ("images", ".jpg"): "image/jpeg",
        ("images", ".png"): "image/png",
        ("thumbnails", ".jpg"): "image/jpeg",
        ("maps", ".js"): "text/javascript; charset=utf-8",
    }

    def do_GET(self) -> None:
        """The page, its pictures and maps, what was decided, and corrected masks."""
        self._answer(self._get)

    def do_PUT(self) -> None:
        """Save a case."""
        self._answer(self._put)

    def _answer(self, act: Callable[[list[str]], tuple[bytes, str]]) -> None:
        try:
            content, kind = act(self._checked_path())
            self._send(HTTPStatus.OK, content, kind)
        except _Refusal as refusal:
            self._send_message(refusal.status, str(refusal))
        except ConflictError as error:
            self._send_message(HTTPStatus.CONFLICT, str(error))
        except SegconfError as error:
            self._send_message(HTTPStatus.BAD_REQUEST, str(error))
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True

    def _checked_path(self) -> list[str]:
        """Parts of the path after the token.

        Raises:
            _Refusal: the request comes from elsewhere, or does not know the token.
        """
        origin, site = self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site")
        own = self.headers.get("Host") == f"{HOST}:{self.server.server_port}"
        if self.command == "PUT" and origin is None:
            own = False
        if not own or origin not in (None, self.server.origin):
            raise _Refusal(HTTPStatus.FORBIDDEN, "requests of other pages are refused")
        if site not in (None, "none", "same-origin"):
            raise _Refusal(HTTPStatus.FORBIDDEN, "requests of other pages are refused")
        _, token, *rest = [*self.path.partition("?")[0].split("/", 3), "", ""]
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            raise _Refusal(HTTPStatus.FORBIDDEN, "the address is not complete: the token is wrong")
        return [unquote(part) for part in rest if part]

    def _get(self, path: list[str]) -> tuple[bytes, str]:
        store = self.server.store
        match path:
            case ["review.html"]:
                rows = sorted(store.rows.values(), key=lambda row: row.case)
                page = review_page(rows, store.record, served=True)
                return page.encode(), "text/html; charset=utf-8"
            case ["review", below]:
                return self._file(below)
            case ["state"]:
                return _as_json(store.state()), _JSON
            case ["corrected", name] if name in store.rows:
                return _as_json(store.corrected_mask(name)), _JSON
            case _:
                raise _Refusal(HTTPStatus.NOT_FOUND, "there is nothing of that name")

    def _file(self, below: str) -> tuple[bytes, str]:
        room, _, name = below.partition("/")
        case, dot, ending = name.rpartition(".")
        suffix = dot + ending
        kind = self._FILES.get((room, suffix))
        store = self.server.store
        if kind is None or case not in store.rows:
            raise _Refusal(HTTPStatus.NOT_FOUND, "there is nothing of that name")
        folder = store.folder
        files: dict[str, Callable[[str], Path]] = {
            "images": lambda name: folder.shown_image(name, suffix),
            "thumbnails": folder.thumbnail,
            "maps": folder.page_map,
        }
        path = files[room](case)
        try:
            if not path.resolve().is_relative_to(folder.path.resolve()):
                raise _Refusal(HTTPStatus.NOT_FOUND, "the file lies outside of the folder")
            return read_bytes(path), kind
        except (OSError, ValueError):
            raise _Refusal(HTTPStatus.NOT_FOUND, "the file is gone") from None

    def _put(self, path: list[str]) -> tuple[bytes, str]:
        match path:
            case ["cases", name]:
                values = self._body()
                store = self.server.store
                entry = store.checked(name, values, values.get("model_sha256"))
                given = self.headers.get("If-Match")
                version = None if given == "*" else (given or "").strip('"')
                return _as_json({"version": store.save(entry, version=version)}), _JSON
            case _:
                raise _Refusal(HTTPStatus.NOT_FOUND, "there is nothing of that name")

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise _Refusal(HTTPStatus.LENGTH_REQUIRED, "the length is missing")
        if int(length) > LARGEST_BODY:
            raise _Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the request is too large")
        if self.headers.get_content_type() != "application/json":
            raise _Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "expected JSON")
        try:
            values = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise _Refusal(HTTPStatus.BAD_REQUEST, "the request is no JSON") from None
        if not isinstance(values, dict):
            raise _Refusal(HTTPStatus.BAD_REQUEST, "expected an entry of a review")
        return values

    def _send_message(self, status: HTTPStatus, message: str) -> None:
        self.close_connection = True  # the body may not have been read
        self._send(status, _as_json({"message": message}), _JSON)

    def _send(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - of the base class
        """To the log, without the token."""
        logger.debug("%s", (format % args).replace(self.server.token, "..."))


def _as_json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
