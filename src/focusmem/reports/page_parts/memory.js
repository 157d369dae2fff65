// What memory offered for a decision: a card for each item, with its source and the attention of its block.

function memoryPanel(step, episode) {
  const about = [removedLine(step.num_removed), leftOutLine(step.left_out)];
  if (!step.offered.length) return make("div", {}, make("p", { class: "faint" }, nothingWords(step)), ...about);
  const accepted = step.offered.filter((item) => item.is_accepted).length;
  const tokens = step.num_memory_tokens === null ? "" : `, ${plural(step.num_memory_tokens, "memory token")}`;
  const words = `${accepted} of ${step.offered.length} accepted${tokens}`;
  const cards = step.offered.map((item) => memoryCard(item, step, episode));
  return make("section", { class: "memory" }, make("h3", {}, "Memory", make("small", {}, words)), ...cards, ...about);
}

function nothingWords(step) {
  const tokens = step.num_memory_tokens;
  return tokens ? `The items of the ${plural(tokens, "memory token")} were not recorded.` : "Memory offered nothing.";
}

function removedLine(removed) {
  const keys = Object.entries(removed);
  if (!keys.length) return null;
  const words = keys.map(([key, num]) => `${num} by ${key}`).join(", ");
  return make("p", { class: "faint removed" }, `Trajectories removed by the leakage guard: ${words}.`);
}

function leftOutLine(leftOut) {
  if (!leftOut) return null;
  const words = `${plural(leftOut.num_frames, "screenshot")} and ${plural(leftOut.num_characters, "character")}`;
  return make("p", { class: "faint left-out" }, `Left out of the search's query, because it was too long: ${words}.`);
}

function memoryCard(item, step, episode) {
  const source = item.recalled === null ? null : readJson(`recalled-${item.recalled}`);
  const name = item.role === "working" ? "this episode, earlier" : (item.trajectory_id ?? "unknown trajectory");
  const head = make(
    "div",
    { class: "card-head" },
    make("span", { class: "role" }, `${item.role} ${item.rank + 1}`),
    make("span", { class: "source", title: name }, name),
    make("span", { class: `decision ${item.is_accepted ? "accepted" : "rejected"}` }, item.is_accepted ? "accepted" : "rejected"),
  );
  return make(
    "article",
    { class: `card ${item.is_accepted ? "" : "rejected"}` },
    head,
    source ? make("p", { class: "instruction" }, source.instruction) : null,
    item.source ? make("p", { class: "faint provenance" }, `Source: ${item.source}`) : null,
    make(
      "div",
      { class: "measures" },
      item.score === null ? null : measure("similarity", item.score),
      item.trust_logit === null ? null : gateMeasure(item),
      make("span", { class: "faint" }, `${plural(item.num_steps, "step")}, ${item.num_tokens ? plural(item.num_tokens, "token") : "raw"}`),
    ),
    thumbnails(item, source, step, episode),
  );
}

function measure(name, value) {
  const bar = make("span", { class: "bar" }, make("i"));
  bar.firstChild.style.width = `${100 * Math.min(1, Math.max(0, value))}%`;
  return make("span", { class: "measure" }, make("span", { class: "faint" }, name), bar, make("b", {}, value.toFixed(2)));
}

function trustOf(logit) {
  return 1 / (1 + Math.exp(-logit));
}

function gateMeasure(item) {
  // The bar shows trust. The numbers are logits, because a trust close to one does not show which value is larger.
  const bar = make("span", { class: `bar ${item.is_accepted ? "accepted" : "rejected"}` }, make("i"), make("u"));
  bar.firstChild.style.width = `${100 * trustOf(item.trust_logit)}%`;
  bar.lastChild.style.left = `${100 * trustOf(item.threshold_logit)}%`;
  const [own, needed] = [item.trust_logit, item.threshold_logit].map((logit) => (Math.abs(logit) < 1e4 ? logit.toFixed(2) : logit.toExponential(1)));
  const trust = `trust ${trustOf(item.trust_logit).toPrecision(3)}, needs more than ${trustOf(item.threshold_logit).toPrecision(3)}`;
  return make(
    "span",
    { class: "measure", title: trust },
    make("span", { class: "faint" }, "gate logit"),
    bar,
    make("b", {}, own),
    make("span", { class: "faint needed" }, `needs more than ${needed}`),
  );
}

function sourceSteps(item, source, episode) {
  // A map is shown even without its trajectory.
  if (source) return source.steps;
  const own = new Map((item.role === "working" ? episode.steps : []).map((step) => [step.picture, step]));
  return item.maps.map((map) => own.get(map.picture) ?? { picture: map.picture, size: map.size, point: null, action: null });
}

function thumbnails(item, source, step, episode) {
  const steps = sourceSteps(item, source, episode);
  if (!steps.length) {
    return item.role === "episodic" ? make("p", { class: "faint" }, "Its trajectory was not kept with the run.") : null;
  }
  const unused = [...item.maps];
  const found = steps.map((seen, place) => {
    // The same picture may occur twice, each time with its own map.
    const at = unused.findIndex((map) => map.picture === seen.picture);
    const map = at < 0 ? null : unused.splice(at, 1)[0];
    return thumbnail(seen, place, map, item);
  });
  return make("div", { class: "thumbnails" }, ...found);
}

function thumbnail(seen, place, map, item) {
  const words = `${place + 1}. ${seen.action ? `${seen.action.name.replace("_", " ")} ${actionWords(seen.action)}` : ""}`;
  const caption = map ? `${words} \u2013 ${percent(map.share)} of the block's attention` : words;
  const open = () => lookCloser(seen, `${item.trajectory_id ?? "this episode"}, step ${caption}`, map);
  return make(
    "button",
    { type: "button", class: "thumbnail", title: caption, click: open },
    shot(seen, words, { map }),
    make("span", { class: "caption" }, words),
    map ? make("span", { class: "share" }, percent(map.share)) : null,
  );
}
