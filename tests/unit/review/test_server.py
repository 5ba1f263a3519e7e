"""The local server of the review page: what it gives, what it saves, and whom it refuses."""

import http.client
import json
import threading
from contextlib import closing
from urllib.parse import quote

import pytest

from segconf.errors import DataError
from segconf.review.server import LARGEST_BODY, ReviewServer
from tests.review_folders import (
    MODEL,
    entry,
    label_entry,
    label_row,
    write_folder,
    write_label_folder,
)


@pytest.fixture
def server(tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    with ReviewServer(write_folder(tmp_path / "maps")) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def connected(server):
    return closing(http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20))


def ask(server, method, path, body=None, **headers):
    """Status and content of an answer; the path is below the token unless it begins with a /."""
    whole = path if path.startswith("/") else f"/{server.token}/{path}"
    own = {"Origin": server.origin, "Content-Type": "application/json"} if method == "PUT" else {}
    sent = None if body is None else json.dumps(body)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    with connected(server) as connection:
        connection.request(method, whole, sent, own | given)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def save(server, case, version, **values):
    body = entry(case, **values) | {"model_sha256": MODEL}
    path = f"cases/{quote(case, safe='')}"
    status, content = ask(server, "PUT", path, body, If_Match=f'"{version}"')
    return status, json.loads(content)


def test_the_page_and_its_files(server):
    status, page = ask(server, "GET", "review.html")
    assert status == 200
    assert "connect-src 'self'" in page
    assert '"served": true' in page
    assert server.address.endswith(f"/{server.token}/review.html")
    for path, content in [
        ("review/images/a/one.jpg", "images/a of a/one"),
        ("review/thumbnails/two.jpg", "thumbnails of two"),
        ("review/maps/two.js", "maps of two"),
    ]:
        assert ask(server, "GET", path) == (200, content.replace("images/a", "a"))


@pytest.mark.parametrize(
    "path",
    [
        "run.json",
        "cases.csv",
        "",
        "review/rows/0.json",
        "review/images/../../../secret.txt",
        "review/images/..%2F..%2F..%2Fsecret.txt",
        "review/images/%2e%2e/%2e%2e/run.jpg",
        "review/maps/three.js",
        "review/maps/two.jpg",
        "corrected/..%2Fsecret",
        "corrected/three",
        "//etc/passwd",
    ],
)
def test_nothing_else_can_be_read(server, path):
    status, content = ask(server, "GET", path)
    assert status in (403, 404)
    assert "secret" not in content


def test_links_out_of_the_folder_are_not_followed(server, tmp_path):
    link = server.store.folder.page_map("two")
    link.unlink()
    link.symlink_to(tmp_path / "secret.txt")
    status, content = ask(server, "GET", "review/maps/two.js")
    assert status == 404
    assert "secret" not in content


def test_other_pages_and_other_hosts_are_refused(server):
    assert ask(server, "GET", "/review.html")[0] == 403
    assert ask(server, "GET", f"/{server.token[:-1]}/review.html")[0] == 403
    assert ask(server, "GET", "state", Origin="http://evil.example")[0] == 403
    assert ask(server, "GET", "state", Origin="null")[0] == 403
    assert ask(server, "GET", "state", Sec_Fetch_Site="cross-site")[0] == 403
    assert ask(server, "GET", "state", Host="evil.example")[0] == 403  # DNS rebinding
    assert ask(server, "GET", "state") == (200, "{}")
    body = entry("two", decision="accept") | {"model_sha256": MODEL}
    assert ask(server, "PUT", "cases/two", body, Origin="http://localhost:1")[0] == 403
    assert ask(server, "PUT", "cases/two", body, Content_Type="text/plain")[0] == 415
    assert ask(server, "POST", "cases/two", body)[0] == 501
    assert not (server.store.folder.path / "decisions.csv").exists()


def test_a_put_without_an_origin_is_refused(server):
    with connected(server) as connection:
        connection.request("PUT", f"/{server.token}/cases/two", "{}")
        assert connection.getresponse().status == 403


def test_requests_that_are_too_large_or_nonsense(server):
    with connected(server) as connection:
        connection.putrequest("PUT", f"/{server.token}/cases/two")
        for name, value in [("Origin", server.origin), ("Content-Length", str(LARGEST_BODY + 1))]:
            connection.putheader(name, value)
        connection.endheaders()
        assert connection.getresponse().status == 413
    assert ask(server, "PUT", "cases/two", [1])[0] == 400
    assert ask(server, "PUT", "cases/three", {})[0] == 400
    assert ask(server, "PUT", "nowhere", {})[0] == 404


def test_a_case_is_saved_and_a_second_tab_is_told(server):
    mask = {"size": [2, 3], "runs": [2, 0, 4, 1]}
    status, first = save(server, "a/one", "", decision="corrected", mask=mask)
    assert status == 200
    assert json.loads(ask(server, "GET", "corrected/a%2Fone")[1]) == mask
    state = json.loads(ask(server, "GET", "state")[1])
    assert state["a/one"]["version"] == first["version"]

    status, refused = save(server, "a/one", "", decision="reject")
    assert status == 409
    assert "changed elsewhere" in refused["message"]
    assert json.loads(ask(server, "GET", "state")[1]) == state
    assert save(server, "a/one", first["version"], decision="reject")[0] == 200
    body = entry("a/one", decision="accept") | {"model_sha256": MODEL}
    assert ask(server, "PUT", "cases/a%2Fone", body, If_Match="*")[0] == 200


def test_other_models_are_refused_with_the_reason(server):
    body = entry("two", decision="accept") | {"model_sha256": "00"}
    status, content = ask(server, "PUT", "cases/two", body)
    assert status == 400
    assert "two: belongs to another model" in json.loads(content)["message"]


def test_a_port_that_is_taken(server):
    with pytest.raises(DataError, match=f"port {server.server_port}: cannot be used"):
        ReviewServer(server.store.folder, port=server.server_port)


def test_labels_are_saved_and_small_pictures_sent(tmp_path):
    row = label_row("a/one", "malignant", 0.2, 0.7, 0.1)
    folder = write_label_folder(tmp_path / "maps", [row])
    picture = folder.shown_image("a/one", ".png")
    picture.parent.mkdir(parents=True)
    picture.write_text("small", encoding="utf-8")
    with ReviewServer(folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        assert ask(server, "GET", "review/images/a/one.png") == (200, "small")
        assert ask(server, "GET", "review/images/a/one.jpg")[0] == 404
        body = label_entry(row, decision="corrected", label="benign") | {"model_sha256": MODEL}
        assert ask(server, "PUT", "cases/a%2Fone", body, If_Match='""')[0] == 200
        assert json.loads(ask(server, "GET", "state")[1])["a/one"]["label"] == "benign"
        refused = ask(server, "PUT", "cases/a%2Fone", body | {"label": "cat"}, If_Match="*")
        assert refused[0] == 400
        assert "a/one: corrected as 'cat'" in refused[1]
        server.shutdown()
        thread.join()
    text = (folder.path / "labels.csv").read_text(encoding="utf-8")
    assert text == "image,label\na/one.png,benign\n"
