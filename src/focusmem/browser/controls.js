// What a page offers: its title, whether a field has the focus, and everything in view that can be clicked or typed
// into, with its name and the part of it that can be seen. Runs inside the page.
async (fontsMs) => {
  const SELECTOR = [
    "a[href]", "area[href]", "button", "input", "textarea", "select", "summary", "[contenteditable]",
    ...["button", "link", "tab", "menuitem", "menuitemcheckbox", "menuitemradio", "checkbox", "radio", "switch",
        "option", "textbox", "searchbox", "combobox"].map((role) => `[role=${role}]`),
  ].join(",");
  const PRESSED = new Set(["submit", "button", "reset", "image", "checkbox", "radio", "color"]);
  const MAX_CONTROLS = 500, MAX_NAME = 200;

  const isEditable = (element) =>
    element.isContentEditable || element.tagName === "TEXTAREA" || element.tagName === "SELECT" ||
    (element.tagName === "INPUT" && !PRESSED.has(element.type));

  const kindOf = (element) => {
    const role = element.getAttribute("role");
    if (isEditable(element) || ["textbox", "searchbox", "combobox"].includes(role)) return "field";
    if (role) return role === "link" ? "link" : "button";
    return ["A", "AREA"].includes(element.tagName) ? "link" : "button";
  };

  const byIds = (element, ids) => ids.split(/\s+/).map((id) => element.getRootNode().getElementById?.(id)?.innerText);

  const nameOf = (element) => {
    const candidates = [
      element.getAttribute("aria-label"),
      byIds(element, element.getAttribute("aria-labelledby") ?? "").join(" "),
      [...(element.labels ?? [])].map((label) => label.innerText).join(" "),
      element.getAttribute("placeholder"),
      element.getAttribute("alt"),
      isEditable(element) ? "" : element.innerText,
      [...element.querySelectorAll("img[alt], svg[aria-label]")]
        .map((image) => image.getAttribute("alt") ?? image.getAttribute("aria-label")).join(" "),
      PRESSED.has(element.type) ? element.value : "",
      element.getAttribute("title"),
      element.getAttribute("name"),
    ];
    for (const candidate of candidates) {
      const name = (candidate ?? "").toWellFormed().replace(/[\s\p{C}]+/gu, " ").trim();
      if (name) return name.slice(0, MAX_NAME).toWellFormed();
    }
    return "";
  };

  // Shadow trees are walked through as if they were part of the page.
  const find = (root) => {
    const found = [...root.querySelectorAll(SELECTOR)];
    for (const host of root.querySelectorAll("*")) if (host.shadowRoot) found.push(...find(host.shadowRoot));
    return found;
  };
  const hitAt = (x, y) => {
    let hit = document.elementFromPoint(x, y);
    for (let inner = hit; inner?.shadowRoot; hit = inner) {
      const deeper = inner.shadowRoot.elementFromPoint(x, y);
      if (!deeper || deeper === inner) break;
      inner = deeper;
    }
    return hit;
  };
  const isPartOf = (node, element) => {
    for (; node; node = node.parentNode ?? node.host) {
      if (node === element || (node.tagName === "LABEL" && node.control === element)) return true;
    }
    return false;
  };

  // The first piece of the element (a link may run over two lines) whose visible part can be hit in its middle.
  const placeOf = (element) => {
    for (const rect of [...element.getClientRects(), ...(element.firstElementChild?.getClientRects() ?? [])]) {
      const left = Math.max(0, Math.round(rect.left)), right = Math.min(innerWidth, Math.round(rect.right));
      const top = Math.max(0, Math.round(rect.top)), bottom = Math.min(innerHeight, Math.round(rect.bottom));
      const width = right - left, height = bottom - top;
      if (width < 1 || height < 1) continue;
      const hit = hitAt(left + Math.floor(width / 2), top + Math.floor(height / 2));
      if (isPartOf(hit, element)) return { left, top, width, height };
    }
    return null;
  };

  const isUsable = (element) =>
    !element.disabled && element.type !== "hidden" && element.type !== "file" &&
    element.checkVisibility({ opacityProperty: true, visibilityProperty: true });

  const late = new Promise((resolve) => setTimeout(resolve, fontsMs));
  await Promise.race([document.fonts.ready, late]);
  const controls = [];
  for (const element of find(document)) {
    if (controls.length === MAX_CONTROLS) break;
    const place = isUsable(element) && placeOf(element);
    const name = place && nameOf(element);
    if (name) controls.push({ name, kind: kindOf(element), ...place });
  }
  let focused = document.activeElement;
  while (focused?.shadowRoot?.activeElement) focused = focused.shadowRoot.activeElement;
  return { title: String(document.title).toWellFormed(), hasFocus: Boolean(focused && isEditable(focused)), controls };
}
