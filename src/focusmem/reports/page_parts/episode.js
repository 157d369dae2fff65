// One attempt at a task: its episodes beside each other, a strip of all steps, and the step that is shown.

let opened = { row: null, episodes: [] };

function open(row) {
  if (opened.row !== row) {
    const read = (place, run) => (place === null ? null : readJson(`episode-${run}-${place}`));
    opened = { row, episodes: row.episodes.map(read) };
  }
  return opened;
}

function nameOf(row) {
  return row.attempt === null ? row.task_id : `${row.task_id} #${row.attempt}`;
}

function lastPlace(row) {
  // The closing screenshot takes the place after the last step.
  return Math.max(...row.num_steps.map((count, run) => (count ?? 0) + (row.has_closing[run] ? 1 : 0)), 1) - 1;
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
  for (const episode of episodes) preload(episode && seenAt(episode, place + 1));
}

function showCurrent(strips, hadFocus) {
  const tile = strips.querySelector(".strip-step.current");
  if (tile === null) return;
  strips.scrollLeft = tile.offsetLeft - (strips.clientWidth - tile.offsetWidth) / 2;
  if (hadFocus) tile.focus({ preventScroll: true });
}

function seenAt(episode, place) {
  return place === episode.steps.length ? episode.closing : episode.steps[place];
}

function preload(seen) {
  const address = seen && pictureAddress(seen.picture);
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
      make("span", { class: "task-id" }, nameOf(row)),
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
        ? make("p", { class: "faint divergence-line" }, "Both runs took the same actions.")
        : null
      : make(
          "p",
          { class: "divergence-line" },
          make("button", { type: "button", id: "divergence", click: () => actions.goTo(parts) }, `\u2260 First difference at step ${parts + 1}`),
        );
  return make("div", {}, make("div", { class: "strips" }, ...lines), jump);
}

function strip(episode, run, row, place, actions) {
  const line = make("div", { class: "strip" }, row.episodes.length > 1 ? letter(run) : null);
  if (episode === null) return make("div", { class: "strip" }, letter(run), make("span", { class: "faint" }, "not attempted"));
  const tile = (seen, at, words, caption, ...classes) => {
    const isCurrent = at === place;
    const names = ["strip-step", isCurrent ? "current" : "", ...classes].join(" ").trim();
    const settings = { type: "button", class: names, title: words, "aria-current": isCurrent ? "step" : null, click: () => actions.goTo(at) };
    return make("button", settings, shot(seen, words), make("span", { class: "caption" }, caption));
  };
  episode.steps.forEach((step, at) => {
    const name = step.action ? step.action.name : "none";
    const classes = [step.error ? "failed" : "", row.divergence === at ? "diverges" : ""].filter(Boolean);
    line.append(tile(step, at, `Step ${at + 1}: ${name} ${actionWords(step.action)}`, `${at + 1} ${name.replace("_", " ")}`, ...classes));
  });
  if (episode.closing) line.append(tile(episode.closing, episode.steps.length, "After the last action", "end", "closing"));
  return line;
}

function column(episode, run, row, place, actions) {
  const isPair = row.episodes.length > 1;
  const name = [isPair ? letter(run) : null, make("span", { class: "method" }, index.runs[run].label)];
  if (episode === null) {
    return make("section", { class: "column" }, make("h3", {}, ...name, stateBadge(null)), make("p", { class: "over" }, "This run has no episode of this attempt."));
  }
  const num = episode.steps.length;
  const count = place < num ? `step ${place + 1} of ${num}` : plural(num, "step");
  const position = make("small", { class: "position" }, `${count}, ${seconds(episode.seconds)} in total`);
  const differs = row.divergence === place ? make("span", { class: "badge differs" }, "\u2260 first difference") : null;
  const head = make("h3", {}, ...name, stateBadge(episode.state), position, differs);
  const ending = make("div", { class: "ending" }, answerLine(episode), brokenLine(episode), verdictLine(episode));
  return make("section", { class: "column" }, head, ending, stepView(episode, place, actions));
}

function answerLine(episode) {
  if (episode.error) return make("p", { class: "error-text" }, episode.error);
  if (episode.answer !== null) return make("p", { class: "answer" }, "answered ", make("b", {}, episode.answer || "nothing"));
  return make("p", { class: "answer faint" }, episode.hit_max ? "reached the step limit without an answer" : "no answer");
}

function brokenLine(episode) {
  if (!episode.num_broken) return null;
  return make("p", { class: "broken" }, `The attempt broke ${plural(episode.num_broken, "time")} before and was started again.`);
}

function verdictLine(episode) {
  const { reason, judge, judge_profile: profile, score, consultation, cost, strict, num_unreadable: numUnreadable } = episode.verdict;
  if (reason === episode.error) return null;
  const name = profile === undefined ? judge : `${judge} (${profile})`;
  const words = (text) => make("span", { class: "faint" }, text);
  const line = make("span", { class: "verdict" }, words(`${name}: `), reason);
  if (score !== undefined) line.append(words(` Score ${number(score, 2)}.`));
  if (numUnreadable > 0) line.append(words(` Unreadable replies: ${number(numUnreadable)}.`));
  if (strict !== undefined && strict !== episode.verdict.outcome) line.append(words(` A strict parser reads: ${strict}.`));
  if (consultation === undefined) return make("p", {}, line);
  const dollars = cost.usd === undefined ? "" : `, ${cost.usd.toFixed(4)} dollars`;
  const spent = `${plural(cost.num_calls, "call")}, ${seconds(cost.seconds)}, ${plural(cost.num_prompt_tokens + cost.num_reply_tokens, "token")}${dollars}`;
  const departures = consultation.departures.map((departure) => make("p", { class: "faint" }, `Departure: ${departure}.`));
  return folded(line, () => [
    make("p", { class: "faint" }, `Replies of ${consultation.model} (${spent}):`),
    ...departures,
    ...consultation.replies.flatMap(({ part, text }) => [make("p", { class: "faint" }, part), make("pre", {}, text)]),
  ]);
}
