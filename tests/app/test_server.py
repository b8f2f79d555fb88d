"""The web application without a browser: who may ask, what headers say, what files are served."""

from __future__ import annotations

import re

import httpx
import pytest
from conftest import png_bytes
from live_app import LiveApp

from app.ui.guard import Guard

EVIL = "http://evil.example"


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    with LiveApp(tmp_path_factory.mktemp("server") / "data") as live:
        yield live


@pytest.fixture
def client(app):
    with httpx.Client(base_url=app.address, timeout=60, trust_env=False) as one:
        yield one


def test_the_page_has_strict_headers(client):
    answer = client.get("/")
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    for rule in ("default-src 'self'", "img-src 'self' data: blob:", "connect-src 'self'", "frame-ancestors 'none'",
                 "form-action 'none'", "object-src 'none'"):  # fmt: skip
        assert rule in policy
    assert "http:" not in policy and "*" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "", "[::2]", "10.0.0.1"])
def test_other_hosts_are_refused(app, client, host):
    port = app.address.rsplit(":", 1)[1]
    for name in (host, f"{host}:{port}"):
        answer = client.get("/", headers={"Host": name})
        assert answer.status_code == 400 and "not served" in answer.text
    assert "content-security-policy" in answer.headers


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST"])
def test_loopback_names_are_served(app, client, host):
    port = app.address.rsplit(":", 1)[1]
    assert client.get("/gradio_api/startup-events", headers={"Host": f"{host}:{port}"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": EVIL},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_sites_cannot_post(client, headers):
    files = {"files": ("a.png", png_bytes())}
    assert client.post("/gradio_api/upload", files=files, headers=headers).status_code == 403
    assert client.post("/gradio_api/queue/join", json={}, headers=headers).status_code == 403
    allowed = [value for key, value in client.get("/", headers=headers).headers.items() if "allow-origin" in key]
    assert EVIL not in allowed


def test_other_sites_may_only_link_here(client):
    cross = {"Sec-Fetch-Site": "cross-site"}
    assert client.get("/", headers={**cross, "Sec-Fetch-Mode": "navigate"}).status_code == 200
    assert client.get("/", headers={**cross, "Sec-Fetch-Mode": "no-cors"}).status_code == 403


def test_the_page_itself_may_post(app, client):
    same = {"Origin": app.address, "Sec-Fetch-Site": "same-origin"}
    answer = client.post("/gradio_api/upload", files={"files": ("a.png", png_bytes())}, headers=same)
    assert answer.status_code == 200
    path = answer.json()[0]
    assert path.startswith(str(app.data_dir / "uploads"))
    assert client.get(f"/gradio_api/file={path}").headers["x-content-type-options"] == "nosniff"


def test_only_previews_and_uploads_are_served(app, client):
    secret = app.data_dir / "conversations.sqlite3"
    assert secret.exists()
    for path in (secret, app.data_dir / "lock", "/etc/passwd", app.data_dir / "previews" / ".." / "lock"):
        assert client.get(f"/gradio_api/file={path}").status_code in (403, 404)


def test_nothing_is_shared_recorded_or_reported(client):
    config = client.get("/config").json()
    assert config["analytics_enabled"] is False and not config.get("share_url")
    assert config.get("run_history") in (False, None) and config["footer_links"] == []
    assert client.get("/monitoring").status_code in (403, 404)
    page = client.get("/").text
    loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', page)
    assert [one for one in loaded if "127.0.0.1" not in one] == []
    for path in ("/docs", "/openapi.json", "/gradio_api/mcp/sse"):
        assert client.get(path).status_code == 404


def test_actions_are_not_an_open_interface(client):
    info = client.get("/gradio_api/info").json()
    assert info["named_endpoints"] == {} and info["unnamed_endpoints"] == {}


@pytest.mark.parametrize(
    ("hosts", "host", "allowed"),
    [([], "192.168.1.5:80", False), (["box", "*ip"], "192.168.1.5:80", True), (["box", "*ip"], "BOX:80", True),
     (["box", "*ip"], "evil.example", False), (["box", "*ip"], "[fe80::1]:80", True), ([], "[::1]:7860", True)],
)  # fmt: skip
def test_names_when_listening_on_the_network(hosts, host, allowed):
    assert Guard(None, hosts)._is_ours(host) is allowed


def test_the_app_ends_at_ctrl_c_with_130(tmp_path):
    live = LiveApp(tmp_path / "data").start()
    live.interrupt()
    assert live.process is not None and live.process.wait(60) in (130, -2)
    assert "Traceback" not in live.output()


def test_a_model_that_does_not_open_ends_the_app_with_its_sentence(tmp_path):
    (tmp_path / "broken").mkdir()
    live = LiveApp(tmp_path / "data", model=tmp_path / "broken").start(wait=False)
    assert live.process is not None and live.process.wait(180) == 2
    lines = [line for line in live.output().splitlines() if not line.startswith("Opening ")]
    assert len(lines) == 1 and "broken" in lines[0], lines


def test_exports_are_for_this_page_only(app, client):
    assert client.get("/export/nothing").status_code == 404
    assert "no longer exists" in client.get("/export/nothing?state=1").text
    for headers in ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, {"Origin": EVIL}):
        assert client.get("/export/nothing", headers=headers).status_code == 403
    assert client.get("/export/..%2Flock").status_code == 404
    assert not list(app.data_dir.glob("transfer-*"))
