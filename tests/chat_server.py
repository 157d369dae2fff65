"""A chat endpoint on this machine that notes what it is asked and answers as it is told, also in every wrong way."""

import contextlib
import json
import threading
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HANG = "hang"
"""Never answers."""
HANG_UP = (None, "")
"""Closes the connection without an answer."""


def completion(text, finish_reason="stop", **usage):
    """`usage` holds the counts of tokens, if the server tells them."""
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}
    return 200, json.dumps({"choices": [choice]} | ({"usage": usage} if usage else {}))


def half(answer):
    """An answer that promises its whole length, and breaks off in the middle."""
    status, body, *_ = answer
    return status, body[: len(body) // 2], {"Content-Length": str(len(body))}


def huge(num_bytes):
    return 200, "x" * num_bytes


def refusal(message, **fields):
    """An error as OpenAI's servers send it."""
    return 400, json.dumps({"error": {"message": message} | fields})


class ChatServer:
    """Gives `answers`, one after the other; the last one again and again.

    An answer is HANG, or a status, a body and perhaps headers, or a function of the request that returns them.
    """

    def __init__(self, *answers, delay_s=0.0, trickle_s=None):
        """With `trickle_s`, an answer comes byte by byte, with so much time between two of them; with a negative value
        its headers do.
        """
        self.answers, self.delay_s, self.trickle_s = list(answers), delay_s, trickle_s
        self.asked: list[dict] = []
        self.headers: list[Message] = []
        self._closing = threading.Event()
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with server._lock:
                    server.headers.append(self.headers)
                    server.asked.append(asked)
                    answer = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
                server._closing.wait(server.delay_s)
                answer = answer(asked) if callable(answer) else answer
                if answer == HANG:
                    server._closing.wait()
                if answer in (HANG, HANG_UP):
                    self.close_connection = True
                    self.connection.close()
                    return
                with contextlib.suppress(ConnectionError):  # whoever asked may have given up
                    self.answer(*answer)

            def answer(self, status, body, headers=None):
                body = body.encode()
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
                    self.send_header(name, value)
                head = b"".join(self._headers_buffer) + b"\r\n"
                self._headers_buffer = []
                self.send(head, is_slow=(server.trickle_s or 0) < 0)
                self.send(body, is_slow=(server.trickle_s or 0) > 0)

            def send(self, data, *, is_slow):
                pieces = [data[at : at + 1] for at in range(len(data))] if is_slow else [data]
                for piece in pieces:
                    self.wfile.write(piece)
                    self.wfile.flush()
                    if is_slow and server._closing.wait(abs(server.trickle_s)):
                        return

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
