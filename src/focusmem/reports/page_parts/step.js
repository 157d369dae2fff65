// One step of one episode: its screenshot, action, prompt, memory and times.

function stepView(episode, place, { isPromptOpen }) {
  const step = episode.steps[place];
  if (!step && place === episode.steps.length && episode.closing) return closingView(episode.closing);
  if (!step) return make("p", { class: "over" }, place === 0 ? "No step was taken." : "This episode has ended.");
  return make(
    "div",
    { class: "step" },
    seenView(step, `Screenshot before step ${place + 1}`, `Step ${place + 1}`),
    make("div", { class: "decided" }, actionLine(step.action)),
    make(
      "div",
      { class: "done" },
      step.action?.arguments.reasoning ? make("p", { class: "reasoning" }, step.action.arguments.reasoning) : null,
      step.error ? make("p", { class: "error-text" }, step.error) : null,
      step.is_repeat ? make("p", { class: "warning" }, "Same action and same screenshot as in the step before.") : null,
      timeBar(step),
      tokenLine(step),
      step.reply === null ? null : folded("Reply", () => [make("pre", {}, step.reply)]),
      promptFold(step, episode, isPromptOpen),
      memoryPanel(step, episode),
    ),
  );
}

function seenView(seen, words, caption) {
  const screen = shot(seen, words, { isAtOnce: true, click: () => lookCloser(seen, caption) });
  return make("div", { class: "seen" }, screen, seen.url ? make("p", { class: "url", title: seen.url }, seen.url) : null);
}

function closingView(closing) {
  const words = "After the last action";
  return make("div", { class: "step closing" }, seenView(closing, words, words), make("p", { class: "decided faint" }, words));
}

const PARTS = ["observe", "wait", "retrieve", "remember", "reply", "act"];

function timeBar(step) {
  const parts = step.seconds;
  // Known parts come first, in the order in which they happen.
  const unknown = Object.keys(parts).filter((part) => !PARTS.includes(part));
  const entries = [...PARTS, ...unknown].map((part) => [part, parts[part] ?? 0]);
  const total = step.wall_s;
  if (!total) return null;
  const bar = make("div", { class: "times", role: "img", "aria-label": `This step took ${seconds(total)}` });
  const legend = make("p", { class: "legend" }, make("b", {}, seconds(total)));
  entries.forEach(([part, value], place) => {
    if (!value) return;
    const piece = make("i", { class: `part part-${place % 6}`, title: `${part} ${seconds(value)}` });
    piece.style.flexGrow = (100 * value) / total;
    bar.append(piece);
    legend.append(make("span", {}, make("i", { class: `part part-${place % 6}` }), `${part} ${seconds(value)}`));
  });
  if (step.num_together > 1) legend.append(make("span", {}, `answered together with ${plural(step.num_together - 1, "other decision")}`));
  return make("div", {}, bar, legend);
}

function tokenLine(step) {
  if (!step.num_prompt_tokens && !step.num_memory_tokens) return null;
  const memory = step.num_memory_tokens ? ` + ${plural(step.num_memory_tokens, "memory token")}` : "";
  return make("p", { class: "faint" }, plural(step.num_prompt_tokens, "prompt token") + memory);
}

function promptFold(step, episode, isOpen) {
  if (!step.prompt.length) return null;
  const fill = () => step.prompt.map((text) => promptTurn(episode.texts[text]));
  const found = folded(`Prompt, ${plural(step.prompt.length, "part")}`, fill, isOpen);
  found.classList.add("prompt");
  return found;
}

function promptTurn(text) {
  // Screenshots are named by their digests; those that the page has are shown.
  const turn = make("pre");
  for (const piece of text.split(/\b([0-9a-f]{64})\b/)) {
    const isPicture = /^[0-9a-f]{64}$/.test(piece) && byId(`picture-${piece}`) !== null;
    turn.append(isPicture ? make("span", { class: "in-prompt", title: piece }, picture(piece, "screenshot")) : piece);
  }
  return turn;
}
