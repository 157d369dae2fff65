import pytest

from focusmem.browser.addresses import check_address, check_allowed, full_address
from focusmem.browser.chromium_process import host_rules
from focusmem.errors import ConfigError

ALLOWED = ("shop.example", "127.0.0.1:8000", "localhost:9000")


@pytest.mark.parametrize(
    "url",
    [
        "https://shop.example/",
        "http://shop.example",
        "HTTPS://Shop.Example/list?q=a%20b#top",
        "https://www.shop.example/",
        "https://shop.example:443/",
        "https://shop.example:/",
        "https://shop.example/?path=a\\b",
        "https://shop.example/\u00e4pfel",
        "http://127.0.0.1:8000/x",
        "http://localhost:9000/x",
        "about:blank",
    ],
)
def test_plain_addresses_of_the_task_are_opened(url):
    assert check_address(url, ALLOWED) is None


@pytest.mark.parametrize(
    "url",
    [
        # other schemes
        "file:///etc/passwd",
        "javascript:alert(1)",
        "JavaScript:alert(1)",
        "javascript:1+1",
        "data:text/html,<p>x",
        "about:config",
        "about:blank#x",
        "chrome://settings",
        "view-source:https://shop.example/",
        "blob:https://shop.example/1",
        "ftp://shop.example/",
        "ws://shop.example/",
        # other sites
        "https://elsewhere.example/",
        "https://notshop.example/",
        "https://shop.example.evil.test/",
        "https://example/",
        "https://shop.example:8443/",
        "http://127.0.0.1/",
        "http://127.0.0.1:8001/",
        "http://127.0.0.1:80000/",
        "http://x.127.0.0.1:8000/",
        "http://127.1:8000/",
        "http://2130706433:8000/",
        "http://0x7f000001:8000/",
        "http://[::1]:8000/",
        "http://localhost:9001/",
        # two ways to read it
        "https://user@shop.example/",
        "https://shop.example@evil.test/",
        "https://user:word@shop.example/",
        "https://shop.example\\@evil.test/",
        "https:\\\\evil.test/",
        "https://evil.test\\.shop.example/",
        "https://evil.test\t.shop.example/",
        "https://shop.example/\nx",
        " https://shop.example/",
        "https://shop.example/a b",
        "https://shop.example%2eevil.test/",
        "https://shop.example%00.evil.test/",
        "https://sh\u043ep.example/",
        "https://shop\uff0eexample/",
        "https://shop.example\u3002evil.test/",
        "https://shop.example/\u202etxt",
        "https://shop.example\u200b/",
        "https://shop.example./",
        "https:shop.example",
        "https:/shop.example",
        "https:///shop.example",
        "//shop.example/",
        "shop.example",
        "localhost:9000",
        "https://",
        "https://shop.example:0/",
        "https://shop.example:x/",
        "https://[shop.example/",
        "https://-shop.example/",
        "",
        "https://shop.example/" + "x" * 20_000,
    ],
)
def test_anything_else_is_refused_with_a_sentence(url):
    refusal = check_address(url, ALLOWED)
    assert refusal is not None
    assert refusal.endswith(".")


def test_the_refusal_names_the_site_and_where_to_stay():
    assert check_address("https://evil.test:81/", ALLOWED) == (
        "The site evil.test:81 does not belong to this task; stay on shop.example, 127.0.0.1:8000, localhost:9000."
    )
    assert (
        check_address("https://evil.test/", ()) == "The site evil.test does not belong to this task; stay on the page."
    )


@pytest.mark.parametrize(
    "entry", ["", "*.example", "**", "Shop.example", "https://shop.example", "a b", "a,b", "a/b", "x:0", "x:", 7]
)
def test_an_entry_that_is_no_host_is_the_users_mistake(entry):
    with pytest.raises(ConfigError, match="allow-list"):
        check_allowed([entry])


def test_entries_count_once():
    assert check_allowed(["b.example", "a.example", "b.example"]) == ("b.example", "a.example")


@pytest.mark.parametrize(
    "url", ["https://shop.example/", "http://a.b.example.org/x?y", "https://xn--bcher-kva.example/"]
)
def test_every_public_site_is_allowed_by_a_star(url):
    assert check_address(url, ("*",)) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost/",
        "http://x.localhost/",
        "http://127.0.0.1/",
        "http://10.0.0.7/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]/",
        "http://8.8.8.8/",
        "http://router/",
        "http://printer.local/",
        "http://metadata.google.internal/",
        "https://shop.example:8443/",
        "file:///etc/passwd",
    ],
)
def test_a_star_allows_no_local_name_no_address_and_no_other_port(url):
    assert check_address(url, ("*",)) is not None
    assert check_address("http://127.0.0.1:8000/x", ("*", "127.0.0.1:8000")) is None
    assert "stay on public sites" in check_address("http://router/", ("*",))


def test_with_a_star_only_local_names_and_addresses_are_unknown_to_the_process():
    rules = host_rules(("127.0.0.1:8000", "*"))
    assert rules.startswith("MAP 127.0.0.1:8000 127.0.0.1:8000, MAP localhost ~NOTFOUND")
    assert "MAP * ~NOTFOUND" not in rules
    assert all(f"MAP {pattern} ~NOTFOUND" in rules for pattern in ("*.local", "*.internal", "*0", "*9", "*:*:*"))


def test_a_path_is_meant_on_the_current_site():
    here = "https://shop.example/list?q=x"
    assert full_address("/cart", here) == "https://shop.example/cart"
    assert full_address("//evil.test/x", here) == "https://evil.test/x"
    assert full_address("cart", here) == "cart"
    assert full_address("//[x", here) == "//[x"


def test_the_process_knows_the_allowed_hosts_only():
    assert host_rules(ALLOWED) == (
        "EXCLUDE shop.example, EXCLUDE *.shop.example, MAP 127.0.0.1:8000 127.0.0.1:8000, "
        "MAP localhost:9000 localhost:9000, MAP * ~NOTFOUND"
    )
    assert host_rules(("127.0.0.1",)) == (
        "MAP 127.0.0.1:80 127.0.0.1:80, MAP 127.0.0.1:443 127.0.0.1:443, MAP * ~NOTFOUND"
    )
    assert host_rules(("[::1]:80",)) == "MAP [::1]:80 [::1]:80, MAP * ~NOTFOUND"
