"""A web server of awkward pages, each with one thing that must not trip the browser."""

import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

PAGES = {
    "/": """<title>Home</title><a href="/second">Second page</a> <a href="/never">Never</a>""",
    "/second": """<title>Second</title><p>Here.</p><a href="/">Home</a>""",
    "/tall": "<title>Tall</title><div style='height: 20000px'></div><a href='/second'>The end</a>",
    "/alerts": "<title>Alerts</title><script>while (true) alert('again');</script>",
    "/busy": "<title>Busy</title><button onclick='while (true) {}'>Think hard</button>",
    "/dialogs": """<title>Dialogs</title>
        <button onclick="document.title = [alert('a'), confirm('b'), prompt('c')].join()">Ask me</button>
        <button onclick="onbeforeunload = (event) => event.preventDefault()">Hold me</button>
        <a href="/second">Leave</a>""",
    "/windows": """<title>Windows</title>
        <a href="/second" target="_blank">New window</a>
        <a href="/second?noopener" target="_blank" rel="noopener">Unrelated window</a>
        <button onclick="window.open('/second?script')">Script window</button>
        <a href="http://elsewhere.test/" target="_blank">Foreign window</a>
        <button onclick="for (let i = 0; i < 5; i++) window.open('about:blank')">Many windows</button>""",
    "/cookie": "<title>Cookie</title><script>document.title = document.cookie; document.cookie = 'seen=1';</script>",
    "/form": """<title>Form</title>
        <form action="/second"><input name="q" aria-label="Search" value="old"></form>
        <textarea placeholder="Message"></textarea>
        <select aria-label="Colour"><option>Red</option><option>Blue</option></select>
        <input type="checkbox" id="agree"><label for="agree">I agree</label>
        <input aria-label="Locked" readonly>
        <input type="file" aria-label="Upload"><input type="hidden" aria-label="Hidden">
        <button disabled>Greyed out</button>""",
    "/names": """<title>Names</title><style>* { font: 16px/20px sans-serif; } div { margin: 4px; }</style>
        <div><a href="/1" aria-label="By label">x</a></div>
        <div><span id="other">By other</span><button aria-labelledby="other">x</button></div>
        <div><label>By wrapping <input></label></div>
        <div><input placeholder="By placeholder"></div>
        <div><input type="image" alt="By alt" style="width: 40px; height: 20px"></div>
        <div><a href="/2"><img alt="By picture" style="width: 40px; height: 20px"></a></div>
        <div><a href="/3">By
            text</a></div>
        <div><a href="/4" title="By title"><svg width="20" height="20"></svg></a></div>
        <div><input type="submit" value="By value"></div>
        <div role="tab">By role</div>
        <div id="host"></div>
        <div style="width: 120px"><a href="/5">A link over two lines, because it is long</a></div>
        <a href="/6" style="visibility: hidden">Invisible</a> <a href="/7" style="opacity: 0">Transparent</a>
        <a href="/8" style="position: absolute; top: 5000px">Far below</a>
        <div style="position: relative"><button>Covered</button>
            <div style="position: absolute; inset: 0; margin: 0; background: white"></div></div>
        <script>document.getElementById("host").attachShadow({mode: "open"}).innerHTML =
            "<button>In the shadow</button>";</script>""",
    "/lies": """<title>Lies</title><a href="/second">Fine</a><script>
        document.querySelectorAll = () => [{ getClientRects: () => [{}], checkVisibility: () => true }];</script>""",
    "/list": """<title>List</title><body style="margin: 0; height: 3000px">
        <div id="inner" style="height: 300px; margin: 50px 0; overflow: auto"><p style="height: 700px">x</p></div>""",
    "/files": "<title>Files</title><a href='/nothing'>/nothing</a> <a href='/file'>/file</a>",
    "/slow-picture": "<title>Slow picture</title><img src='/never' alt='x'><a href='/second'>Second page</a>",
}


class Site:
    """Serves the pages above, and `/redirect?<address>`, `/never`, `/file`, `/nothing`, three ways to refuse a visitor
    (`/refused`, `/too-many`, `/puzzle`); notes what was asked for."""

    def __init__(self, **pages: str) -> None:
        self.pages = PAGES | {f"/{name}": page for name, page in pages.items()}
        self.asked: list[str] = []
        self.closing = threading.Event()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(self.path)
                site.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.block_on_close = False
        self._server.daemon_threads = True
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.host}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        split = urlsplit(request.path)
        match split.path:
            case "/never":
                self.closing.wait(60)
            case "/redirect":
                send(request, 302, {"Location": unquote(split.query)}, "")
            case "/refused":
                send(request, 403, {"Content-Type": "text/html"}, "<title>Forbidden</title>")
            case "/too-many":
                send(request, 429, {"Content-Type": "text/html"}, "<title>Slow down</title>")
            case "/puzzle":
                headers = {"Content-Type": "text/html", "cf-mitigated": "challenge"}
                send(request, 403, headers, "<title>Are you a person?</title>")
            case "/nothing":
                send(request, 204, {}, "")
            case "/file":
                send(request, 200, {"Content-Type": "application/zip"}, "PK")
            case path if path in self.pages:
                send(request, 200, {"Content-Type": "text/html"}, self.pages[path])
            case _:
                send(request, 404, {"Content-Type": "text/html"}, "<title>Not found</title>")

    def __enter__(self) -> "Site":
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()


def send(request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: str) -> None:
    request.send_response(status)
    for name, value in {**headers, "Content-Length": str(len(body.encode()))}.items():
        request.send_header(name, value)
    request.end_headers()
    with suppress(OSError):  # the visitor has left
        request.wfile.write(body.encode())
