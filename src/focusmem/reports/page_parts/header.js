// The top of the page: the runs, their figures, and the buttons.

const COLUMNS = [
  { head: "success", show: (f) => percent(f.success_rate), more: successWords },
  { head: "won", show: wonWords, more: judgedWords },
  { head: "mean score", show: (f) => number(f.mean_score, 2), isShown: (f) => f.mean_score !== f.judged_success_rate },
  { head: "failed", show: (f) => number(f.num_failed), isShown: (f) => typeof f.num_failed === "number" },
  { head: "errors", show: (f) => number(f.num_errors), more: errorWords },
  { head: "blocked", show: (f) => number(f.num_blocked) },
  { head: "limit reached", show: (f) => percent(f.hit_max_rate) },
  { head: "steps", show: (f) => number(f.mean_steps) },
  { head: "time per step", show: (f) => seconds(f.mean_step_s), more: conditionWords },
  { head: "tokens per step", show: (f) => number(f.mean_prompt_tokens, 0), more: (f) => `+ ${number(f.mean_memory_tokens, 0)} memory` },
  { head: "accepted", show: (f) => percent(f.accepted_rate) },
  { head: "judge calls", show: (f) => number(f.judge_calls), more: judgeCallWords, isShown: (f) => f.judge_calls > 0 },
].filter(({ isShown }) => isShown === undefined || index.runs.some((run) => isShown(run.figures)));

function successWords(figures) {
  const range = figures.success_interval;
  return Array.isArray(range) ? `${Math.round(100 * range[0])}\u2013${Math.round(100 * range[1])}` : null;
}

function wonWords(figures) {
  return `${number(figures.num_won)} of ${number(figures.num_tasks * figures.num_attempts || null)}`;
}

function conditionWords(figures) {
  const { parallel, cache } = figures;
  if (!Array.isArray(parallel) || !parallel.length) return null;
  const encoded = cache && typeof cache.num_encoded === "number" ? `, ${plural(cache.num_encoded, "item")} encoded while acting` : "";
  return `${parallel.join(" or ")} at once${encoded}`;
}

function judgedWords(figures) {
  const rate = figures.judged_success_rate;
  return typeof rate === "number" && rate !== figures.success_rate ? `${percent(rate)} of ${number(figures.num_judged)} judged` : null;
}

function errorWords(figures) {
  const counts = { "not judged": figures.num_not_judged, missing: figures.num_missing, restarted: figures.num_broken };
  const words = Object.entries(counts).filter(([, count]) => count > 0);
  return words.map(([word, count]) => `${number(count)} ${word}`).join(", ") || null;
}

function judgeCallWords(figures) {
  const dollars = typeof figures.judge_usd === "number" ? `, ${figures.judge_usd.toFixed(2)} dollars` : "";
  const unreadable = figures.judge_unreadable > 0 ? `, ${number(figures.judge_unreadable)} unreadable` : "";
  const differing = figures.judge_parser_disagreements > 0 ? `, parsers differ on ${number(figures.judge_parser_disagreements)}` : "";
  return `${seconds(figures.judge_s)}${dollars}${unreadable}${differing}`;
}

function judgeLines() {
  const lines = index.runs.flatMap((run) => (run.figures.judges ?? []).map(({ judge, profile, model, departures }) => {
    const name = `${judge}${profile === null ? "" : ` (${profile})`}${model === null ? "" : ` by ${model}`}`;
    return `Judged with ${name}.${departures.length ? ` Departures: ${departures.join("; ")}.` : ""}`;
  }));
  return [...new Set(lines)].map((line) => make("p", { class: "faint" }, line));
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

function taskSets() {
  // Runs beside each other usually have the same tasks; then one line says which.
  const lines = index.runs.map((run) => taskSetWords(run.figures)).filter(Boolean);
  return [...new Set(lines)].map((words) => make("p", { class: "more tasks" }, words));
}

function taskSetWords({ num_tasks, subset }) {
  if (!subset) return null;
  const moved = typeof subset.num_days === "number" ? `dates moved by ${number(subset.num_days)} days` : null;
  const parts = [
    `${number(num_tasks)} tasks of ${subset.suite}`,
    subset.revision ? `revision ${subset.revision}` : null,
    moved,
    subset.num_left_out > 0 ? `${number(subset.num_left_out)} left out` : null,
    subset.sha256 ? `subset ${subset.sha256.slice(0, 12)}` : null,
  ];
  return parts.filter(Boolean).join(", ");
}

function both(row) {
  return row.states.length === 2 && row.states.every((state) => state !== null);
}

function isCounted(row) {
  // As in `focusmem compare`, an error or a block counts as not won.
  return both(row) && !row.states.includes("not_judged");
}

function onlyOneWon(row, run) {
  return isCounted(row) && row.states[run] === "success" && row.states[1 - run] !== "success";
}

function comparison() {
  if (index.runs.length < 2) return null;
  const count = (test) => index.rows.filter(test).length;
  const tally = (words, test, ...marks) => make("span", { class: "tally" }, ...marks, ` ${words} `, make("b", {}, count(test)));
  return make(
    "p",
    { class: "comparison" },
    tally("won alone", (row) => onlyOneWon(row, 0), letter(0)),
    tally("won alone", (row) => onlyOneWon(row, 1), letter(1)),
    tally("both won", (row) => isCounted(row) && row.states.every((state) => state === "success")),
    tally("neither won", (row) => isCounted(row) && !row.states.includes("success")),
    count(isCounted) < count(both) ? tally("not judged in both", (row) => both(row) && !isCounted(row)) : null,
    count(both) < index.rows.length ? tally("in one run only", (row) => !both(row)) : null,
  );
}

function about() {
  return folded("About", () =>
    index.runs.flatMap((run, place) => [
      make("h3", {}, index.runs.length > 1 ? letter(place) : null, run.run_id),
      make("pre", {}, recordWords(run.record)),
      folded("Figures", () => [make("pre", {}, JSON.stringify(run.figures, null, 2))]),
      folded("Settings", () => [make("pre", {}, JSON.stringify(run.record.config, null, 2))]),
      folded("Code and machine", () => [make("pre", {}, run.environment ? JSON.stringify(run.environment, null, 2) : "not recorded")]),
    ]),
  );
}

function recordWords(record) {
  const lines = [record.command.join(" "), `${record.status}, started ${record.started_at}`, record.error];
  return lines.filter(Boolean).join("\n");
}

function problems() {
  if (!index.problems.length) return null;
  const label = `${plural(index.problems.length, "problem")} with the files`;
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
    // Some browsers store nothing for local files; then the choice lasts until the page is closed.
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
  ["\u2190 or k", "previous step"],
  ["Home, End", "first step, end of the episode"],
  ["] and [", "next episode, previous episode"],
  ["d", "first step at which the runs differ"],
  ["h", "heat maps on and off"],
  ["p", "the prompt on and off"],
  ["/", "search; Enter keeps the words, Esc clears them"],
  ["t", "dark or light"],
  ["?", "list of keys"],
  ["Esc", "close a dialog"],
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
    make("button", { type: "button", class: "quiet", id: "show-keys", title: "list of keys (?)", click: showKeys }, "? Keys"),
  );
  const title = make("div", { class: "title" }, make("h1", {}, "focusmem trace"), about(), problems());
  const middle = make("div", { class: "summary" }, figureTable(), ...taskSets(), ...judgeLines(), comparison());
  byId("header").replaceChildren(title, middle, buttons);
}
