// What the page does by itself: keys, staying at the newest text, large pictures, clean copies. Talks to no server.
(() => {
  const JOINER = /\u2060/g;
  const NOTES = /\s*<div class="dz-(facts|error)">[\s\S]*?<\/div>\s*/g;
  const find = (selector) => document.querySelector(selector);
  const isNarrow = () => window.innerWidth < 768;

  // Messages carry invisible joiners and a line of facts; a copy has neither.
  if (navigator.clipboard && navigator.clipboard.writeText) {
    const write = navigator.clipboard.writeText.bind(navigator.clipboard);
    navigator.clipboard.writeText = (text) => write(String(text).replace(NOTES, "").replace(JOINER, ""));
  }
  document.addEventListener("copy", (event) => {
    const text = String(window.getSelection());
    if (!JOINER.test(text) || !event.clipboardData) return;
    event.clipboardData.setData("text/plain", text.replace(JOINER, ""));
    event.preventDefault();
  });

  // Follow new text only while the person is at the end.
  let atEnd = true;
  const watchScroll = (box) => {
    box.addEventListener("scroll", () => { atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 60; });
    const stay = () => { if (atEnd) box.scrollTop = box.scrollHeight; };
    new MutationObserver(stay).observe(box, { childList: true, subtree: true, characterData: true });
    new ResizeObserver(stay).observe(box);
    box.addEventListener("load", stay, true);
  };

  const sidebarIsOpen = () => { const side = find("#side"); return !!(side && side.classList.contains("open")); };
  const toggleSidebar = () => { const button = find("#side .toggle-button"); if (button) button.click(); };

  window.dayzero = {
    focusComposer() {
      atEnd = true;
      requestAnimationFrame(() => { if (!isNarrow()) { const area = find("#composer textarea"); if (area) area.focus(); } });
    },
    leaveSidebar() { atEnd = true; if (isNarrow() && sidebarIsOpen()) toggleSidebar(); },
  };

  const closeLightbox = () => { const box = find("#dz-lightbox"); if (box) box.remove(); return !!box; };
  document.addEventListener("click", (event) => {
    if (closeLightbox()) return;
    const image = event.target.closest && event.target.closest("#transcript img, #live img");
    if (!image) return;
    event.preventDefault();
    event.stopPropagation();
    const box = document.createElement("div");
    box.id = "dz-lightbox";
    const large = document.createElement("img");
    large.src = image.src;
    large.alt = image.alt;
    box.appendChild(large);
    document.body.appendChild(box);
  }, true);

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.isComposing) return;
    if (closeLightbox()) return;
    const stop = find("#composer .stop-button");
    if (stop) stop.click();
  });

  // On a narrow screen the list would cover the conversation. It opens by itself some time after it is built: close it
  // then, once, unless the person was faster.
  const startNarrow = () => {
    if (!isNarrow()) return;
    const side = find("#side");
    const close = () => {
      if (!sidebarIsOpen()) return;
      watcher.disconnect();
      toggleSidebar();
    };
    const watcher = new MutationObserver(() => requestAnimationFrame(close));
    watcher.observe(side, { attributes: true, attributeFilter: ["class"] });
    side.addEventListener("pointerdown", () => watcher.disconnect(), { once: true });
    close();
  };

  const ready = setInterval(() => {
    const box = find("#scroll");
    if (!box || !find("#side")) return;
    clearInterval(ready);
    watchScroll(box);
    startNarrow();
  }, 50);
})();
