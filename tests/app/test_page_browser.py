"""The real page in headless Chromium: with the fake engine for the edges, with the demo model for the whole line."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import png_bytes
from live_app import ROOT, LiveApp

pytestmark = pytest.mark.browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
DEMO = ROOT / "assets" / "demo" / "config.json"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    with sync_api.sync_playwright() as play:
        bundled = Path(play.chromium.executable_path)
        if path is None and not bundled.exists():
            pytest.skip("no Chromium found; on Debian: apt-get install chromium")
        one = play.chromium.launch(executable_path=path or str(bundled), args=["--no-sandbox"])
        yield one
        one.close()


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveApp]:
    with LiveApp(tmp_path_factory.mktemp("page") / "data") as live:
        yield live


class Tab:
    """One tab with the words of a person, and a record of every address it asked for."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1100, "height": 760}, **options})
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.asked: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.address = address
        self.page.goto(address)
        self.box = self.page.locator("#composer textarea")
        self.box.wait_for()
        self.page.locator("#composer textarea:enabled").wait_for()

    def say(self, text: str) -> None:
        self.box.fill(text)
        self.box.press("Enter")

    def attach(self, path: Path) -> None:
        self.page.set_input_files("#composer input[type=file]", str(path))
        self.page.locator("#composer .thumbnail-item").first.wait_for()

    def see(self, text: str, where: str = "#transcript") -> None:
        self.page.locator(where).get_by_text(text).first.wait_for()

    def gone(self, selector: str) -> None:
        self.page.locator(selector).wait_for(state="hidden")

    def transcript(self) -> str:
        return str(self.page.locator("#transcript").inner_text())

    def pictures(self, count: int) -> None:
        """Waits for that many pictures: the page fetches the part that draws one after the text stands."""
        self.page.wait_for_function("n => document.querySelectorAll('#transcript img').length === n", arg=count)

    def close(self) -> None:
        assert self.errors == []
        outside = [url for url in self.asked if not url.startswith((self.address, "data:", "blob:"))]
        assert outside == []
        self.context.close()


@pytest.fixture
def tab(browser: Any, app: LiveApp) -> Iterator[Tab]:
    one = Tab(browser, app.address)
    yield one
    one.close()


def test_type_read_reload(tab: Tab):
    tab.see("fake-model", "#empty")
    tab.say("hello page")
    tab.see("You said: hello page")
    tab.see("context 1,801 of 4,096 tokens", "#meter")
    assert tab.page.evaluate("document.activeElement.closest('#composer') !== null")
    assert tab.box.input_value() == ""
    tab.page.reload()
    tab.see("You said: hello page")
    assert tab.page.locator("#title").inner_text() == "hello page"


def test_shift_enter_is_a_newline_and_text_stays_text(tab: Tab):
    tab.box.fill("first <b>bold</b>")
    tab.box.press("Shift+Enter")
    tab.box.press_sequentially("second <|user|> &amp; end")
    tab.box.press("Enter")
    tab.see("You said")
    shown = tab.page.locator("#transcript .user .message-content").first.inner_text().replace("\u2060", "")
    assert shown.strip() == "first <b>bold</b>\nsecond <|user|> &amp; end"
    assert tab.page.locator("#transcript .user b").count() == 0


def test_picture_upload_lightbox_and_bad_picture(tab: Tab, tmp_path: Path):
    (tmp_path / "bad.png").write_bytes(b"this is no picture")
    (tmp_path / "good.png").write_bytes(png_bytes((300, 200)))
    tab.attach(tmp_path / "bad.png")
    tab.say("look")
    tab.page.get_by_text("'bad.png' is not a picture").wait_for()
    assert tab.box.input_value() == "look"
    tab.page.locator("#composer .delete-button").first.click()
    tab.attach(tmp_path / "good.png")
    tab.box.press("Enter")
    tab.see("I see 1 picture")
    tab.page.locator("#transcript img").first.click()
    tab.page.locator("#dz-lightbox img").wait_for()
    tab.page.keyboard.press("Escape")
    tab.gone("#dz-lightbox")


def test_pasted_picture_and_long_pasted_text(tab: Tab):
    tab.page.evaluate(
        """async () => {
            const canvas = document.createElement("canvas");
            canvas.width = canvas.height = 20;
            const blob = await new Promise((done) => canvas.toBlob(done));
            const data = new DataTransfer();
            data.items.add(new File([blob], "pasted.png", {type: "image/png"}));
            const event = new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true});
            document.querySelector("#composer textarea").dispatchEvent(event);
        }"""
    )
    tab.page.locator("#composer .thumbnail-item").wait_for()
    tab.say("w " * 3000)
    tab.see("I see 1 picture")


def test_stop_during_reading_and_while_writing(tab: Tab):
    tab.say("slow")
    tab.see("Reading", "#live-line")
    tab.page.keyboard.press("Escape")
    tab.see("stopped")
    tab.gone(".dz-live")
    tab.say("forever")
    tab.see("word3", "#live")
    tab.page.locator("#composer .stop-button").click()
    tab.gone(".dz-live")
    tab.see("word3")
    tab.page.locator("#go-on").click()
    tab.see("You said: Please continue")


def test_reload_and_leave_during_an_answer(tab: Tab):
    tab.say("forever and ever")
    tab.see("word3", "#live")
    tab.page.reload()
    tab.see("word12", "#live")
    tab.page.locator("#new").click()
    tab.page.locator("#empty").wait_for()
    tab.gone("#live")
    tab.say("another one")
    tab.see("You said: another one")
    assert "word" not in tab.transcript()
    tab.page.locator("#list label", has_text="forever and ever").first.click()
    tab.see("word40", "#live")
    tab.page.keyboard.press("Escape")
    tab.gone(".dz-live")


def test_two_tabs(browser: Any, app: LiveApp, tab: Tab):
    tab.say("shared by two")
    tab.see("You said: shared by two")
    other = Tab(browser, app.address)
    other.page.locator("#list label", has_text="shared by two").click()
    other.see("You said: shared by two")
    other.say("long story")
    tab.see("word79")
    other.see("word79")
    for _ in range(100):  # each tab commits the finished answer in its own time
        if tab.transcript() == other.transcript():
            break
        tab.page.wait_for_timeout(50)
    assert tab.transcript() == other.transcript()
    other.close()


def test_rename_search_delete(tab: Tab):
    tab.say("to be renamed")
    tab.see("You said")
    tab.page.locator("#rename").click()
    tab.page.locator("#rename-text input").fill("Zebra talk")
    tab.page.locator("#rename-save").click()
    entry = tab.page.locator("#list label", has_text="Zebra talk")
    entry.wait_for()
    tab.page.locator("#search input").fill("zebra")
    tab.page.wait_for_function("document.querySelectorAll('#list label').length === 1")
    tab.page.locator("#search input").fill("")
    tab.page.locator("#delete").click()
    tab.page.locator("#delete-no").click()
    tab.gone("#delete-panel")
    tab.page.locator("#delete").click()
    tab.page.locator("#delete-yes").click()
    entry.wait_for(state="detached")
    tab.page.locator("#empty").wait_for()


def test_retry_edit_and_versions(tab: Tab):
    tab.say("number one")
    tab.see("You said: number one")
    tab.page.get_by_label("Retry").click()
    tab.see("2 / 2", "#actions")
    tab.page.locator("#previous").click()
    tab.see("1 / 2", "#actions")
    tab.page.get_by_label("Edit").click()
    area = tab.page.locator("#transcript textarea")
    area.fill("number <two>")
    tab.page.get_by_label("Submit").first.click()
    tab.see("You said: number")
    tab.page.wait_for_function("document.querySelector('#transcript').innerText.includes('two')")
    tab.see("2 / 2", "#actions")


def test_settings_reach_the_engine(tab: Tab):
    tab.page.locator("#settings").click()
    tab.page.locator("#max-tokens input").fill("4")
    tab.page.locator("#settings-close").click()
    tab.gone("#settings-panel")
    tab.say("long answer")
    tab.see("token limit reached")
    assert "word3" in tab.transcript() and "word4" not in tab.transcript()


def test_what_a_model_writes_cannot_act(tab: Tab):
    tab.say("evil think")
    tab.see("echo hi")
    assert tab.page.evaluate("window.hacked") is None
    assert tab.page.locator("#transcript form, #transcript .bot img, #transcript script").count() == 0
    code = tab.page.locator("#transcript pre code").first.text_content()
    assert code is not None and "\techo hi" in code
    tab.see("Thoughts")
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.page.get_by_label("Copy message").last.click()
    copied = tab.page.evaluate("navigator.clipboard.readText()")
    assert copied.endswith("```make\nall:\n\techo hi\n```") and "<script>window" in copied


def test_an_error_is_shown_and_the_conversation_goes_on(tab: Tab):
    tab.say("fail")
    tab.see("9,000 tokens")
    tab.say("hello again")
    tab.see("hello again")


def test_export_import_and_memory(tab: Tab, tmp_path: Path):
    (tmp_path / "good.png").write_bytes(png_bytes((30, 20)))
    tab.attach(tmp_path / "good.png")
    tab.say("to be taken along restore")
    tab.see("1,200 tokens restored in 45 ms")
    tab.page.locator("#memory").click()
    tab.see("This process", "#memory-panel")
    bar = tab.page.locator(".dz-stack span").first
    assert "used by every token" in str(bar.get_attribute("title")) and bar.bounding_box()["width"] > 100
    tab.page.locator("#memory").click()
    tab.gone("#memory-panel")
    tab.page.locator("#export").click()
    with tab.page.expect_download() as download:
        tab.page.get_by_text("Messages and pictures", exact=True).click()
    assert download.value.suggested_filename == "to be taken along restore.zip"
    download.value.save_as(tmp_path / "talk.zip")
    tab.page.locator("#export-close").click()
    tab.gone("#export-panel")
    tab.page.locator("#delete").click()
    tab.page.locator("#delete-yes").click()
    tab.page.locator("#empty").wait_for()
    tab.page.set_input_files("#side input[type=file]", str(tmp_path / "talk.zip"))
    tab.see("1,200 tokens restored in 45 ms")
    tab.pictures(1)
    tab.say("and on")
    tab.see("You said: and on")
    (tmp_path / "bad.zip").write_bytes(b"nothing")
    tab.page.set_input_files("#side input[type=file]", str(tmp_path / "bad.zip"))
    tab.see("not a whole zip", "#notice")


def test_dark_and_narrow(browser: Any, app: LiveApp):
    narrow = Tab(browser, app.address, viewport={"width": 390, "height": 844}, color_scheme="dark")
    narrow.page.wait_for_function("!document.querySelector('#side').classList.contains('open')")
    narrow.say("on a phone")
    narrow.see("You said: on a phone")
    assert narrow.page.evaluate("document.documentElement.scrollWidth") <= 390
    right = narrow.page.evaluate("document.querySelector('#settings').getBoundingClientRect().right")
    assert right <= 390 and narrow.page.locator("#title").is_visible()
    assert narrow.page.evaluate("document.body.classList.contains('dark')")
    narrow.close()


def test_the_page_opens_while_the_model_loads_and_survives_a_kill(browser: Any, tmp_path: Path):
    gate = tmp_path / "open"
    app = LiveApp(tmp_path / "data", gate=gate)
    with app:
        tab = Tab(browser, app.address)
        tab.see("Loading", "#model")
        tab.say("early bird")
        tab.see("Loading", "#live-line")
        gate.touch()
        tab.see("You said: early bird")
        tab.say("forever")
        tab.see("word99", "#live")
        app.kill()
        app.start()
        tab.see("interrupted")
        assert re.search(r"word\d+", tab.transcript())
        tab.say("still here")
        tab.see("You said: still here")
        tab.errors.clear()
        tab.close()


@pytest.mark.skipif(not DEMO.exists(), reason="the demo model is not part of this checkout")
def test_the_demo_model_from_upload_to_restart(browser: Any, tmp_path: Path):
    pytest.importorskip("engine.api", reason="the engine cannot be imported here")
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (128, 128), "white")
    ImageDraw.Draw(picture).ellipse((24, 24, 104, 104), fill=(220, 20, 20))
    picture.save(tmp_path / "circle.png")
    with LiveApp(tmp_path / "data", real=True) as app:
        tab = Tab(browser, app.address)
        tab.see("Demo model", "#empty")
        tab.page.locator("#settings").click()
        tab.page.locator("#temperature input").fill("0")
        tab.page.locator("#settings-close").click()
        tab.attach(tmp_path / "circle.png")
        tab.say("What is in the picture?")
        tab.see("red circle")
        tab.see("tokens/s")
        tab.say("Hello!")
        tab.page.locator("#transcript .bot-row").nth(1).wait_for()
        before = tab.transcript()
        tab.page.reload()
        tab.see("red circle")
        app.stop()
        tab.errors.clear()
        tab.close()
        app.start()
        tab = Tab(browser, app.address)
        tab.page.locator("#list label", has_text="What is in the picture?").click()
        tab.see("red circle")
        tab.pictures(1)
        assert tab.transcript() == before
        tab.say("Thank you!")
        tab.page.locator("#transcript .bot-row").nth(2).wait_for()
        tab.errors.clear()
        tab.close()
