"""The real page in headless Chromium: with the fake engine for the edges, with the demo model for the whole line."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import png_bytes
from live_app import ROOT, LiveApp

pytestmark = pytest.mark.browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
DEMO = ROOT / "assets" / "demo" / "config.json"
WAIT_S = 60  # far more than a busy machine needs: only what never comes takes that long

# Lets the answers to some requests reach the page late: those whose body holds `late.part`, by `late.ms`.
LATE = """
    window.late = {part: null, ms: 0, asked: 0, came: 0};
    const ask = window.fetch;
    window.fetch = async (address, options) => {
        const isLate = late.part !== null && String(options && options.body).includes(late.part);
        if (isLate) late.asked += 1;
        const answer = await ask(address, options);
        if (isLate) {
            await new Promise((done) => setTimeout(done, late.ms));
            late.came += 1;
        }
        return answer;
    };
"""


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
        self.page.set_default_timeout(1000 * WAIT_S)
        self.page.add_init_script(f"(() => {{{LATE}}})()")
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
        attached = self.page.locator("#composer .thumbnail-item")
        before = attached.count()
        self.page.set_input_files("#composer input[type=file]", str(path))
        self.becomes(attached.count, before + 1)

    def becomes(self, read: Callable[[], Any], wanted: Any) -> None:
        """Waits until what is read is what is wanted: parts of the page follow one another."""
        end = time.monotonic() + WAIT_S
        while read() != wanted and time.monotonic() < end:
            self.page.wait_for_timeout(50)
        assert read() == wanted

    def until(self, condition: str) -> None:
        """Waits for a condition in the page's own language."""
        self.page.wait_for_function(condition)

    def late(self, part: str, ms: int) -> None:
        """The answer to the next request that holds this text comes late."""
        self.page.evaluate("([part, ms]) => Object.assign(late, {part, ms, asked: 0, came: 0})", [part, ms])

    def see(self, text: str, where: str = "#transcript") -> None:
        self.page.locator(where).get_by_text(text).first.wait_for()

    def gone(self, selector: str) -> None:
        self.page.locator(selector).wait_for(state="hidden")

    def transcript(self) -> str:
        return str(self.page.locator("#transcript").inner_text())

    def pictures(self, count: int) -> None:
        """Waits for that many pictures: the page fetches the part that draws one after the text stands."""
        self.becomes(self.page.locator("#transcript img").count, count)

    def close(self) -> None:
        self.context.close()
        assert self.errors == []
        assert [url for url in self.asked if not url.startswith((self.address, "data:", "blob:"))] == []


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
    tab.until("document.activeElement.closest('#composer') !== null")
    tab.becomes(tab.box.input_value, "")
    tab.page.reload()
    tab.see("You said: hello page")
    tab.becomes(tab.page.locator("#title").inner_text, "hello page")


def test_shift_enter_is_a_newline_and_text_stays_text(tab: Tab):
    tab.box.fill("first <b>bold</b>")
    tab.box.press("Shift+Enter")
    tab.box.press_sequentially("second <|user|> &amp; end")
    tab.box.press("Enter")
    tab.see("You said")
    shown = tab.page.locator("#transcript .user .message-content").first
    wanted = "first <b>bold</b>\nsecond <|user|> &amp; end"
    tab.becomes(lambda: shown.inner_text().replace("\u2060", "").strip(), wanted)
    assert tab.page.locator("#transcript .user b").count() == 0


def test_picture_upload_lightbox_and_bad_picture(tab: Tab, tmp_path: Path):
    (tmp_path / "bad.png").write_bytes(b"this is no picture")
    (tmp_path / "good.png").write_bytes(png_bytes((300, 200)))
    tab.attach(tmp_path / "bad.png")
    tab.say("look")
    tab.page.get_by_text("'bad.png' is not a picture").wait_for()
    assert tab.box.input_value() == "look"
    tab.page.locator("#composer .delete-button").first.click()
    tab.page.locator("#composer .thumbnail-item").wait_for(state="detached")
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


def test_new_and_writing_at_once(tab: Tab):
    tab.say("forever in the old one")
    tab.see("word3", "#live")
    tab.late('"data":[]', 1500)  # the answer to New
    tab.page.locator("#new").click()
    tab.say("typed at once")
    tab.see("You said: typed at once")
    tab.until("late.came === 1")
    tab.becomes(tab.box.input_value, "")
    tab.say("and on")
    tab.see("You said: and on")
    tab.see("You said: typed at once")
    assert "word" not in tab.transcript()
    tab.page.locator("#list label", has_text="forever in the old one").click()
    tab.see("word3", "#live")
    tab.page.keyboard.press("Escape")
    tab.gone(".dz-live")
    assert "typed at once" not in tab.transcript()


def test_words_typed_while_a_message_is_on_its_way_stay(tab: Tab, tmp_path: Path):
    (tmp_path / "good.png").write_bytes(png_bytes((30, 20)))
    tab.attach(tmp_path / "good.png")
    tab.late("first words", 1000)
    tab.say("first words")
    tab.until("late.asked === 1")
    tab.box.press_sequentially(" and more")
    tab.see("You said: first words")
    tab.becomes(tab.box.input_value, " and more")
    tab.becomes(tab.page.locator("#composer .thumbnail-item").count, 0)
    tab.box.press("Enter")
    tab.see("You said: and more")
    tab.pictures(1)


def test_what_is_typed_while_an_answer_ends_stays(browser: Any, app: LiveApp, tab: Tab):
    tab.say("forever until stopped elsewhere")
    tab.see("word3", "#live")
    tab.page.locator("#settings").click()
    tab.page.locator("#system textarea").fill("half a wish")
    other = Tab(browser, app.address)
    other.page.locator("#list label", has_text="forever until stopped").click()
    other.page.locator("#composer .stop-button").click()
    tab.see("stopped")
    tab.page.wait_for_timeout(200)  # whatever else came with that
    assert tab.page.locator("#system textarea").is_visible()
    assert tab.page.locator("#system textarea").input_value() == "half a wish"
    other.close()


def test_two_tabs(browser: Any, app: LiveApp, tab: Tab):
    tab.say("shared by two")
    tab.see("You said: shared by two")
    other = Tab(browser, app.address)
    other.page.locator("#list label", has_text="shared by two").click()
    other.see("You said: shared by two")
    other.say("long story")
    tab.see("word79")
    other.see("word79")
    tab.becomes(lambda: tab.transcript() == other.transcript(), True)  # each commits the answer in its own time
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
    tab.becomes(tab.page.locator("#list label").count, 1)
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
    tab.see("two", "#transcript .bot")
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
    copied = """async () => {
        const text = await navigator.clipboard.readText();
        return text.endsWith("```make\\nall:\\n\\techo hi\\n```") && text.includes("<script>window");
    }"""
    tab.becomes(lambda: tab.page.evaluate(copied), True)


def test_an_error_is_shown_and_the_conversation_goes_on(tab: Tab):
    tab.say("fail")
    tab.see("9,000 tokens")
    tab.say("hello again")
    tab.see("You said: fail")
    tab.see("hello again", "#transcript .bot")


def test_export_import_and_memory(tab: Tab, tmp_path: Path):
    (tmp_path / "good.png").write_bytes(png_bytes((30, 20)))
    tab.attach(tmp_path / "good.png")
    tab.say("to be taken along restore")
    tab.see("1,200 tokens restored in 45 ms")
    tab.page.locator("#memory").click()
    tab.see("This process", "#memory-panel")
    bar = tab.page.locator(".dz-stack span").first
    assert "used by every token" in str(bar.get_attribute("title"))
    tab.until("document.querySelector('.dz-stack span').getBoundingClientRect().width > 100")
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
    narrow.until("document.documentElement.scrollWidth <= 390")
    narrow.until("document.querySelector('#settings').getBoundingClientRect().right <= 390")
    narrow.page.locator("#title").wait_for()
    narrow.until("document.body.classList.contains('dark')")
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
        tab.see("word3")
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
        tab.becomes(tab.page.locator("#transcript .dz-facts").count, 2)
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
        tab.becomes(tab.transcript, before)
        tab.say("Thank you!")
        tab.becomes(tab.page.locator("#transcript .dz-facts").count, 3)
        tab.errors.clear()
        tab.close()
