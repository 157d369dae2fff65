// The list, its filters, the keys, and the step that is shown.

const isPair = index.runs.length === 2;
const unit = index.rows.some((row) => row.attempt !== null) ? "attempt" : "task";
const all = (state) => (row) => row.states.every((own) => own === state);
const some = (state) => (row) => row.states.includes(state);
const FILTERS = [
  { name: "all", words: "All", test: () => true },
  { name: "won", words: isPair ? "Both won" : "Won", test: all("success") },
  { name: "lost", words: isPair ? "Both lost" : "Lost", test: all("failure") },
  { name: "differs", words: "Differs", test: (row) => both(row) && row.states[0] !== row.states[1], isPair: true },
  { name: "only-a", words: "Only A won", test: (row) => onlyOneWon(row, 0), isPair: true },
  { name: "only-b", words: "Only B won", test: (row) => onlyOneWon(row, 1), isPair: true },
  { name: "error", words: "Error", test: some("error"), isRare: true },
  { name: "blocked", words: "Blocked", test: some("blocked"), isRare: true },
  { name: "not-judged", words: "Not judged", test: some("not_judged"), isRare: true },
  { name: "one-run", words: "In one run", test: some(null), isRare: true },
].filter((filter) => (isPair || !filter.isPair) && (!filter.isRare || index.rows.some(filter.test)));

const state = { filter: FILTERS[0], shown: index.rows, row: index.rows[0], step: 0, isPromptOpen: false };
const buttons = new Map();

function drawFilters() {
  byId("filters").replaceChildren(
    ...FILTERS.map((filter) => {
      const count = make("span", { class: "number" }, index.rows.filter(filter.test).length);
      const choose = () => {
        state.filter = filter;
        drawList();
      };
      return make("button", { type: "button", "data-filter": filter.name, "aria-pressed": "false", click: choose }, filter.words, count);
    }),
  );
}

function matches(row, words) {
  const text = [nameOf(row), row.instruction, row.site, ...row.answers].join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
}

function drawList() {
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  state.shown = index.rows.filter((row) => state.filter.test(row) && matches(row, words));
  for (const button of byId("filters").children) {
    button.setAttribute("aria-pressed", String(button.dataset.filter === state.filter.name));
  }
  buttons.clear();
  byId("rows").replaceChildren(...state.shown.map((row) => make("li", {}, rowButton(row))));
  byId("count").textContent =
    state.shown.length === index.rows.length ? plural(index.rows.length, unit) : `${state.shown.length} of ${plural(index.rows.length, unit)}`;
  if (!state.shown.includes(state.row) && state.shown.length) openRow(state.shown[0]);
  else markRow();
}

function rowButton(row) {
  const steps = row.num_steps.map((count) => count ?? "\u2013").join(" | ");
  const notes = [make("span", {}, nameOf(row)), make("span", { class: "row-steps" }, `${steps} ${steps === "1" ? "step" : "steps"}`)];
  const button = make(
    "button",
    { type: "button", class: "row", click: () => openRow(row) },
    make("span", { class: "marks" }, ...row.states.map(stateMark)),
    make("span", { class: "row-text" }, make("span", { class: "row-title" }, row.instruction), make("span", { class: "row-notes" }, ...notes)),
  );
  buttons.set(row, button);
  return button;
}

function markRow() {
  for (const [row, button] of buttons) {
    if (row === state.row) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
  buttons.get(state.row)?.scrollIntoView({ block: "nearest" });
}

function openRow(row) {
  state.row = row;
  state.step = 0;
  markRow();
  draw();
}

function goTo(step) {
  state.step = Math.max(0, Math.min(step, lastPlace(state.row)));
  draw();
}

function nextRow(by) {
  const at = state.shown.indexOf(state.row);
  const row = state.shown[Math.max(0, Math.min(at + by, state.shown.length - 1))];
  if (row && row !== state.row) openRow(row);
}

function draw() {
  // The list needs only the index; episodes and pictures are further down in the file.
  if (document.readyState === "loading") return;
  drawEpisode(state.row, state.step, { goTo, isPromptOpen: state.isPromptOpen });
  const address = new URLSearchParams({ task: index.rows.indexOf(state.row) + 1, step: state.step + 1 });
  history.replaceState(null, "", `#${address}`);
}

function readAddress() {
  const address = new URLSearchParams(location.hash.slice(1));
  const row = index.rows[Number(address.get("task")) - 1];
  if (!row) return;
  state.row = row;
  state.step = Math.max(0, Math.min((Number(address.get("step")) || 1) - 1, lastPlace(row)));
}

function togglePrompt() {
  state.isPromptOpen = !state.isPromptOpen;
  draw();
}

const ON_KEY = {
  ArrowRight: () => goTo(state.step + 1),
  j: () => goTo(state.step + 1),
  ArrowLeft: () => goTo(state.step - 1),
  k: () => goTo(state.step - 1),
  Home: () => goTo(0),
  End: () => goTo(lastPlace(state.row)),
  "]": () => nextRow(1),
  "[": () => nextRow(-1),
  d: () => state.row.divergence !== null && goTo(state.row.divergence),
  h: () => document.body.classList.toggle("no-heat"),
  p: togglePrompt,
  t: switchTheme,
  "?": showKeys,
  "/": () => byId("search").focus(),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const search = byId("search");
  if (event.target === search) {
    if (event.key === "Enter" || event.key === "Escape") search.blur();
    if (event.key === "Escape") {
      event.preventDefault(); // browsers empty the field without an event
      search.value = "";
      drawList();
    }
    return;
  }
  if (!Object.hasOwn(ON_KEY, event.key)) return;
  event.preventDefault();
  ON_KEY[event.key]();
}

drawHeader();
drawFilters();
readAddress();
byId("search").addEventListener("input", drawList);
document.addEventListener("keydown", onKey);
drawList();
document.addEventListener("DOMContentLoaded", draw);
