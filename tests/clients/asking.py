"""Chat clients for tests: patient, and without pauses."""

from clocks import PATIENT_S
from factories import make_screenshot
from focusmem.clients.openai_chat import ChatConfig, OpenAIChat
from focusmem.schemas import Turn

PICTURE = make_screenshot(1)
PROMPT = (Turn("system", ("Be brief.",)), Turn("user", ("Here:", PICTURE, "What is it?")))


def make_client(server, *, pauses=None, **settings):
    """`pauses` collects how long the client wanted to wait; it never does."""
    config = ChatConfig(**{"url": server.url, "model": "eyes", "timeout_s": PATIENT_S} | settings)
    return OpenAIChat(config, sleep=(pauses if pauses is not None else []).append)


def ask(server, *, seed=None, as_json=False, prompt=PROMPT, **settings):
    return make_client(server, **settings).ask(prompt, seed=seed, as_json=as_json)
