"""A chat endpoint on this machine that notes what it is asked and answers as it is told."""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def completion(text, finish_reason="stop", **usage):
    """`usage` holds the counts of tokens, if the server tells them."""
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}
    return 200, json.dumps({"choices": [choice]} | ({"usage": usage} if usage else {}))


class ChatServer:
    """Gives `answers`, one after the other; the last one again and again.

    An answer is a status with a body, or a function of the request that returns them.
    """

    def __init__(self, *answers, delay_s=0.0, trickle_s=None):
        """With `trickle_s`, an answer comes byte by byte, with so much time between two of them."""
        self.answers, self.delay_s, self.trickle_s = list(answers), delay_s, trickle_s
        self.asked: list[dict] = []
        self.headers: list[dict] = []
        self._closing = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                server.headers.append(dict(self.headers))
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.asked.append(asked)
                server._closing.wait(server.delay_s)
                answer = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
                status, body = answer(asked) if callable(answer) else answer
                if status is None:  # hang up
                    self.connection.close()
                    return
                with contextlib.suppress(ConnectionError):  # whoever asked may have given up
                    self.answer(status, body.encode())

            def answer(self, status, body):
                self.send_response(status)
                self.send_header("Location", "http://elsewhere.test/")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                pieces = [body] if server.trickle_s is None else [body[at : at + 1] for at in range(len(body))]
                for piece in pieces:
                    self.wfile.write(piece)
                    self.wfile.flush()
                    server._closing.wait(server.trickle_s or 0)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
