import http.client
import re
import sys
import types
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from clocks import PATIENT_S
from focusmem.cli.lab import app
from focusmem.errors import UserError
from focusmem.lab.world.html import render_html
from focusmem.lab.world.server import LabServer
from lab.scenes import HOSTILE, ToyPages, hostile


@pytest.fixture(scope="module")
def server():
    with LabServer(ToyPages()) as server:
        yield server


def ask(server, path, method="GET", **headers):
    connection = http.client.HTTPConnection(server.host, timeout=PATIENT_S)
    connection.request(method, path, headers=headers)
    reply = connection.getresponse()
    body = reply.read()
    connection.close()
    return reply, body


def test_pages_are_served_with_a_strict_policy(server):
    reply, body = ask(server, "/toy/find?q=lamp")
    assert reply.status == 200
    assert b"<title>Search: lamp</title>" in body
    policy = reply.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; font-src 'self'; script-src 'sha256-")
    assert reply.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("name", ["regular", "bold"])
def test_the_two_fonts_are_served(server, name):
    reply, body = ask(server, f"/_font/{name}.ttf")
    assert reply.headers["Content-Type"] == "font/ttf"
    assert len(body) > 100_000


@pytest.mark.parametrize("path", ["/../../etc/passwd", "/%2e%2e/etc/passwd", "/_font/../regular.ttf", "/_font/x.ttf"])
def test_no_file_is_served_by_its_path(server, path):
    assert b"<title>Not found</title>" in ask(server, path)[1]


def test_the_root_is_the_worlds_own_page(server):
    assert b"<title>Not found</title>" in ask(server, "/")[1]


def test_what_is_not_meant_for_it_gets_no_page(server):
    assert ask(server, "/toy/", Host="evil.test")[0].status == 421
    assert ask(server, "/toy/" + "x" * 9000)[0].status == 400
    assert ask(server, "/toy/", method="POST")[0].status == 501
    assert ask(server, "http://evil.test/")[0].status == 421


def test_a_port_in_use_is_the_users_mistake(server):
    port = int(server.host.partition(":")[2])
    with pytest.raises(UserError, match=f"Port {port} cannot be used"):
        LabServer(ToyPages(), port)


class Parsed(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags, self.labels, self.text = [], [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.labels += [value for name, value in attrs if name == "aria-label"]
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data):
        self.text += data


def test_text_stays_text():
    parsed = Parsed(render_html(hostile()))
    assert parsed.tags.count("script") == 1
    assert "img" not in parsed.tags
    assert parsed.labels == [HOSTILE, f"Field {HOSTILE}"]
    assert HOSTILE in parsed.text


def test_serve_says_where_it_is_and_stops_on_interrupt(monkeypatch):
    fake = types.ModuleType("focusmem.lab.world.world")
    fake.World = lambda seed: ToyPages()
    monkeypatch.setitem(sys.modules, "focusmem.lab.world.world", fake)
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("focusmem.cli.lab.wait_for_interrupt", lambda: None)
    result = CliRunner().invoke(app, ["serve", "--seed", "7", "--port", "0", "--open"])
    assert result.exit_code == 0, result.output
    [url] = re.findall(r"http://127\.0\.0\.1:\d+/", result.output)
    assert opened == [url]


def test_help_opens_with_a_line_to_paste():
    assert "focusmem lab serve --seed 7" in CliRunner().invoke(app, ["serve", "--help"]).output
