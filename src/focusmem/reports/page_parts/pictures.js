// Each picture is stored once, in the page or beside it, and becomes an image when it comes into view.

const index = readJson("index");
const waiting = new WeakMap();
const watcher = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watcher.unobserve(entry.target);
      entry.target.src = waiting.get(entry.target);
    }
  },
  { rootMargin: "200px" },
);

function pictureAddress(digest) {
  const held = byId(`picture-${digest}`);
  if (held === null) return null;
  if (index.picture_folder !== null) return `${encodeURIComponent(index.picture_folder)}/${digest}.webp`;
  return `data:image/webp;base64,${held.textContent}`;
}

function picture(digest, words, isAtOnce = false) {
  const address = pictureAddress(digest);
  if (address === null) return make("span", { class: "no-picture" }, "no picture");
  const image = make("img", { alt: words, draggable: "false", decoding: isAtOnce ? "sync" : "async" });
  if (isAtOnce) {
    image.src = address;
  } else {
    waiting.set(image, address);
    watcher.observe(image);
  }
  return image;
}

function place(element, point) {
  element.style.left = `${100 * point[0]}%`;
  element.style.top = `${100 * point[1]}%`;
  return element;
}

function shot(step, words, { isAtOnce = false, map = null, click = null } = {}) {
  // A screenshot in a frame of its own shape, with the click and the heat map on it, if it has them.
  const kind = click ? ["button", { type: "button", class: "shot", title: "look closer", click }] : ["div", { class: "shot" }];
  const frame = make(...kind, picture(step.picture, words, isAtOnce));
  frame.style.setProperty("--ratio", step.size[0] / step.size[1]);
  if (map) frame.append(heatMap(map));
  if (step.point) frame.append(place(make("span", { class: "dot", title: "click" }), step.point));
  return frame;
}

const LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
// From nothing over violet and orange to pale yellow.
const HEAT = [
  [40, 10, 90, 0],
  [110, 30, 140, 60],
  [215, 65, 75, 140],
  [250, 150, 40, 185],
  [255, 240, 150, 215],
];

function heatColour(share) {
  const at = share * (HEAT.length - 1);
  const low = Math.min(Math.floor(at), HEAT.length - 2);
  return HEAT[low].map((value, channel) => value + (at - low) * (HEAT[low + 1][channel] - value));
}

function heatMap(map) {
  // One pixel for each visual token; the browser smooths it over the screenshot.
  const canvas = make("canvas", { class: "heat", width: map.num_columns, height: map.num_rows, "aria-hidden": "true" });
  const pen = canvas.getContext("2d");
  const pixels = pen.createImageData(map.num_columns, map.num_rows);
  [...map.levels].forEach((level, token) => {
    pixels.data.set(heatColour(LEVELS.indexOf(level) / (LEVELS.length - 1)), 4 * token);
  });
  pen.putImageData(pixels, 0, 0);
  return canvas;
}

function lookCloser(step, caption, map = null) {
  const dialog = byId("closer");
  const close = make("button", { type: "button", class: "quiet", click: () => dialog.close() }, "Close (Esc)");
  dialog.replaceChildren(
    make("div", { class: "closer-head" }, make("p", {}, caption), close),
    shot(step, caption, { isAtOnce: true, map }),
    step.action === undefined ? null : actionLine(step.action),
  );
  dialog.showModal();
}
