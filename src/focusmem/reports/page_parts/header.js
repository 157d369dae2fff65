// The top of the page: what was run, how it went, and the switches.

const COLUMNS = [
  { head: "success", show: (f) => percent(f.success_rate), more: successWords },
  { head: "won", show: (f) => `${f.num_success} of ${f.num_episodes}` },
  { head: "errors", show: (f) => number(f.num_error + f.num_blocked), more: errorWords },
  { head: "hit limit", show: (f) => percent(f.hit_max_rate) },
  { head: "steps", show: (f) => number(f.mean_steps) },
  { head: "time per step", show: (f) => seconds(f.mean_step_s) },
  { head: "prompt tokens", show: (f) => number(f.mean_prompt_tokens, 0) },
  { head: "memory tokens", show: (f) => number(f.mean_memory_tokens, 0) },
  { head: "accepted", show: (f) => percent(f.accepted_rate) },
];

function successWords(figures) {
  const range = figures.success_interval;
  return Array.isArray(range) ? `${Math.round(100 * range[0])}\u2013${Math.round(100 * range[1])}` : null;
}

function errorWords(figures) {
  const words = [];
  if (figures.num_blocked) words.push(`${figures.num_blocked} blocked`);
  if (figures.num_not_judged) words.push(`${figures.num_not_judged} not judged`);
  return words.join(", ") || null;
}

function figureTable() {
  const head = make("tr", {}, make("th", {}, "run"), ...COLUMNS.map((column) => make("th", {}, column.head)));
  const rows = index.runs.map((run, place) => {
    const name = make("th", { scope: "row" }, index.runs.length > 1 ? letter(place) : null, run.label);
    if (run.folder !== null) name.append(make("span", { class: "more" }, run.folder));
    const cells = COLUMNS.map(({ show, more }) => {
      const words = more?.(run.figures);
      return make("td", {}, show(run.figures), words ? make("span", { class: "more" }, words) : null);
    });
    return make("tr", {}, name, ...cells);
  });
  return make("table", { class: "figures" }, make("thead", {}, head), make("tbody", {}, ...rows));
}

function both(row) {
  return row.states.length === 2 && row.states.every((state) => state !== null);
}

function isJudged(row) {
  // As `focusmem compare` counts: an error is the world's, and says nothing about either run.
  return both(row) && row.states.every((state) => state === "success" || state === "failure");
}

function onlyOneWon(row, run) {
  return isJudged(row) && row.states[run] === "success" && row.states[1 - run] === "failure";
}

function comparison() {
  if (index.runs.length < 2) return null;
  const count = (test) => index.rows.filter(test).length;
  const tally = (words, test, ...marks) => make("span", { class: "tally" }, ...marks, ` ${words} `, make("b", {}, count(test)));
  return make(
    "p",
    { class: "comparison" },
    tally("alone won", (row) => onlyOneWon(row, 0), letter(0)),
    tally("alone won", (row) => onlyOneWon(row, 1), letter(1)),
    tally("both won", (row) => isJudged(row) && row.states.every((state) => state === "success")),
    tally("neither", (row) => isJudged(row) && row.states.every((state) => state === "failure")),
    count(isJudged) < count(both) ? tally("left out, not judged in both", (row) => both(row) && !isJudged(row)) : null,
    count(both) < index.rows.length ? tally("only in one run", (row) => !both(row)) : null,
  );
}

function about() {
  return folded("About", () =>
    index.runs.flatMap((run, place) => [
      make("h3", {}, index.runs.length > 1 ? letter(place) : null, run.run_id),
      make("pre", {}, `${run.record.command.join(" ")}\n${run.record.status}, started ${run.record.started_at}`),
      folded("Figures", () => [make("pre", {}, JSON.stringify(run.results, null, 2))]),
      folded("Config and environment", () => [make("pre", {}, JSON.stringify(run.record, null, 2))]),
    ]),
  );
}

function problems() {
  if (!index.problems.length) return null;
  const label = `${plural(index.problems.length, "thing")} could not be read`;
  const list = () => [make("ul", {}, ...index.problems.map((problem) => make("li", {}, problem)))];
  const found = folded(label, list);
  found.classList.add("problems");
  return found;
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function switchTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  remember("focusmem-theme", document.documentElement.dataset.theme);
}

function remember(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // A browser may keep nothing for files; then the choice lasts as long as the page is open.
  }
}

function remembered(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

const KEYS = [
  ["\u2192 or j", "next step"],
  ["\u2190 or k", "step before"],
  ["Home, End", "first and last step"],
  ["] and [", "next episode, episode before"],
  ["d", "first step where the runs part"],
  ["h", "heat maps on and off"],
  ["p", "the prompt on and off"],
  ["/", "search; Enter keeps it, Esc ends it"],
  ["t", "dark or light"],
  ["?", "these keys"],
  ["Esc", "close what lies on top"],
];

function showKeys() {
  const dialog = byId("keys");
  const lines = KEYS.flatMap(([key, words]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, words)]);
  const close = make("button", { type: "button", class: "quiet", click: () => dialog.close() }, "Close");
  dialog.replaceChildren(make("h2", {}, "Keys"), make("dl", {}, ...lines), close);
  dialog.showModal();
}

function drawHeader() {
  const theme = remembered("focusmem-theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  const buttons = make(
    "div",
    { class: "buttons" },
    make("button", { type: "button", class: "quiet", id: "theme", title: "dark or light (t)", click: switchTheme }, "\u25d0 Theme"),
    make("button", { type: "button", class: "quiet", id: "show-keys", title: "keys (?)", click: showKeys }, "? Keys"),
  );
  const title = make("div", { class: "title" }, make("h1", {}, "focusmem trace"), about(), problems());
  const middle = make("div", { class: "summary" }, figureTable(), comparison());
  byId("header").replaceChildren(title, middle, buttons);
}
