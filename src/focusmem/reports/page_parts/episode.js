// One task: its episodes beside each other, a strip of all steps, and the step that is open.

let opened = { row: null, episodes: [] };

function open(row) {
  if (opened.row !== row) {
    const read = (place, run) => (place === null ? null : readJson(`episode-${run}-${place}`));
    opened = { row, episodes: row.episodes.map(read) };
  }
  return opened;
}

function lastStep(row) {
  return Math.max(...row.num_steps.map((count) => count ?? 0), 1) - 1;
}

function drawEpisode(row, place, actions) {
  const { episodes } = open(row);
  const columns = episodes.map((episode, run) => column(episode, run, row, place, actions));
  const main = byId("episode");
  const hadFocus = main.querySelector(".strips")?.contains(document.activeElement);
  main.replaceChildren(
    episodeHead(row, episodes),
    strips(row, episodes, place, actions),
    make("div", { class: `columns of-${columns.length}` }, ...columns),
  );
  showCurrent(main.querySelector(".strips"), hadFocus);
  for (const episode of episodes) preload(episode?.steps[place + 1]);
}

function showCurrent(strips, hadFocus) {
  const tile = strips.querySelector(".strip-step.current");
  if (tile === null) return;
  strips.scrollLeft = tile.offsetLeft - (strips.clientWidth - tile.offsetWidth) / 2;
  if (hadFocus) tile.focus({ preventScroll: true });
}

function preload(step) {
  const address = step && pictureAddress(step.picture);
  if (address) new Image().src = address;
}

function episodeHead(row, episodes) {
  const task = episodes.find((episode) => episode !== null).task;
  return make(
    "div",
    { class: "episode-head" },
    make("h2", {}, row.instruction),
    make(
      "p",
      { class: "faint" },
      make("span", { class: "task-id" }, row.task_id),
      row.site ? ` on ${row.site}` : "",
      task.answer === undefined ? "" : make("span", {}, ", right answer ", make("b", {}, task.answer)),
    ),
  );
}

function strips(row, episodes, place, actions) {
  const lines = episodes.map((episode, run) => strip(episode, run, row, place, actions));
  const parts = row.divergence;
  const jump =
    parts === null
      ? episodes.length === 2 && both(row)
        ? make("p", { class: "faint divergence-line" }, "Both runs did the same.")
        : null
      : make(
          "p",
          { class: "divergence-line" },
          make("button", { type: "button", id: "divergence", click: () => actions.goTo(parts) }, `\u2260 The runs part at step ${parts + 1}`),
        );
  return make("div", {}, make("div", { class: "strips" }, ...lines), jump);
}

function strip(episode, run, row, place, actions) {
  const line = make("div", { class: "strip" }, row.episodes.length > 1 ? letter(run) : null);
  if (episode === null) return make("div", { class: "strip" }, letter(run), make("span", { class: "faint" }, "not attempted"));
  episode.steps.forEach((step, at) => {
    const classes = ["strip-step"];
    if (at === place) classes.push("current");
    if (step.error) classes.push("failed");
    if (row.divergence === at) classes.push("diverges");
    const words = `Step ${at + 1}: ${step.action ? step.action.name : "none"} ${actionWords(step.action)}`;
    const tile = make(
      "button",
      { type: "button", class: classes.join(" "), title: words, "aria-current": at === place ? "step" : null, click: () => actions.goTo(at) },
      shot(step, words),
      make("span", { class: "caption" }, `${at + 1} ${step.action ? step.action.name.replace("_", " ") : "none"}`),
    );
    line.append(tile);
  });
  return line;
}

function column(episode, run, row, place, actions) {
  const isPair = row.episodes.length > 1;
  const name = [isPair ? letter(run) : null, make("span", { class: "method" }, index.runs[run].label)];
  if (episode === null) {
    return make("section", { class: "column" }, make("h3", {}, ...name, stateBadge(null)), make("p", { class: "over" }, "This run has no episode of the task."));
  }
  const num = episode.steps.length;
  const count = place < num ? `step ${place + 1} of ${num}` : plural(num, "step");
  const position = make("small", { class: "position" }, `${count}, ${seconds(episode.seconds)} in all`);
  const differs = row.divergence === place ? make("span", { class: "badge differs" }, "\u2260 first difference") : null;
  const head = make("h3", {}, ...name, stateBadge(episode.state), position, differs);
  return make("section", { class: "column" }, head, answerLine(episode), stepView(episode, place, actions));
}

function answerLine(episode) {
  if (episode.error) return make("p", { class: "error-text" }, episode.error);
  if (episode.answer !== null) return make("p", { class: "answer" }, "answered ", make("b", {}, episode.answer || "nothing"));
  return make("p", { class: "answer faint" }, episode.hit_max ? "ran into the limit of steps" : "never answered");
}
