#!/bin/sh
# Makes the virtual environment and installs focusmem with its development tools, at the tested versions, and a browser.
# Called by the Makefile; PYTHON and VENV come from there.
set -eu
: "${PYTHON:=python3}" "${VENV:=.venv}"

"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "focusmem needs Python 3.11 or newer; set PYTHON to one: make PYTHON=python3.12 test" >&2
    exit 1
}
if ! "$PYTHON" -c 'import ensurepip' 2>/dev/null; then
    # Debian ships Python without the part that makes virtual environments.
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv
    else
        echo "this Python cannot make virtual environments; install it first: apt-get install python3-venv" >&2
        exit 1
    fi
fi
"$PYTHON" -m venv "$VENV"
pip() { "$VENV/bin/python" -m pip --disable-pip-version-check install --quiet "$@"; }
# torch on its own and first: with its version settled, nothing else asks for another build of it.
pip -c constraints.txt torch
pip -c constraints.txt -e '.[dev,train]'

# The demonstration and the browser tests drive the Chromium that FOCUSMEM_BROWSER names. Without this variable they
# drive the first one that the system has, or one that Playwright has downloaded.
has_browser() {
    if [ -n "${FOCUSMEM_BROWSER:-}" ]; then command -v "$FOCUSMEM_BROWSER" >/dev/null; return; fi
    for name in chromium-headless-shell chromium google-chrome; do
        if command -v "$name" >/dev/null; then return 0; fi
    done
    ls -d "${PLAYWRIGHT_BROWSERS_PATH:-$HOME/.cache/ms-playwright}"/chromium* >/dev/null 2>&1
}
has_driver() { "$VENV/bin/playwright" --version >/dev/null 2>&1; }
install() { apt-get install -y -qq --no-install-recommends "$@"; }
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! { has_browser && has_driver; }; then
    apt-get update -qq || true
    has_browser || case "${FOCUSMEM_BROWSER:-}" in
        "") install chromium-headless-shell || install chromium || true ;;
        chromium | chromium-headless-shell) install "$FOCUSMEM_BROWSER" || true ;;
    esac
    has_driver || install libatomic1 || true
fi
has_driver || {
    echo "Playwright's driver does not run, so no browser can be driven; on Debian:" >&2
    echo "    apt-get install libatomic1" >&2
}
has_browser || {
    echo "no Chromium found: the demonstration draws pages itself, and browser tests will fail; install one with:" >&2
    echo "    apt-get install chromium-headless-shell    (or chromium)" >&2
    echo "    or: $VENV/bin/playwright install chromium-headless-shell" >&2
}
