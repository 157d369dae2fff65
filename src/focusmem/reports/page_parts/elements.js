"use strict";

// Elements and words. Text from a run becomes a text node or an attribute, never markup.

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "click") element.addEventListener("click", value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function byId(name) {
  return document.getElementById(name);
}

function readJson(name) {
  return JSON.parse(byId(name).textContent);
}

const LETTERS = ["A", "B"];
const STATES = {
  success: { word: "won", mark: "\u2713" },
  failure: { word: "lost", mark: "\u2715" },
  error: { word: "error", mark: "!" },
  blocked: { word: "blocked", mark: "\u2298" },
  not_judged: { word: "not judged", mark: "?" },
  absent: { word: "not attempted", mark: "\u2013" },
};

function stateMark(state) {
  const known = STATES[state ?? "absent"];
  return make("span", { class: `mark ${state ?? "absent"}`, title: known.word, "aria-label": known.word }, known.mark);
}

function stateBadge(state) {
  const known = STATES[state ?? "absent"];
  return make("span", { class: `badge ${state ?? "absent"}` }, `${known.mark} ${known.word}`);
}

function letter(run) {
  return make("span", { class: `letter run-${run}` }, LETTERS[run]);
}

function number(value, digits = 1) {
  return typeof value === "number" ? value.toLocaleString("en", { maximumFractionDigits: digits }) : "\u2013";
}

function percent(value) {
  return typeof value === "number" ? `${Math.round(100 * value)} %` : "\u2013";
}

function seconds(value) {
  if (typeof value !== "number") return "\u2013";
  if (value < 1) return `${Math.round(1000 * value)} ms`;
  return value < 90 ? `${value.toFixed(1)} s` : `${(value / 60).toFixed(1)} min`;
}

function plural(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}

function actionWords(action) {
  if (!action) return "unreadable reply";
  const given = action.arguments;
  switch (action.name) {
    case "type":
      return given.description ? `\u201c${given.text}\u201d into ${given.description}` : `\u201c${given.text}\u201d`;
    case "stop":
      return given.answer || "no answer";
    case "wait":
      return "";
    default:
      return given.description ?? given.direction ?? given.key ?? given.url ?? "";
  }
}

function actionLine(action) {
  const name = action ? action.name.replace("_", " ") : "none";
  return make(
    "p",
    { class: "action" },
    make("span", { class: `verb ${action ? "" : "unreadable"}` }, name),
    make("span", { class: "object" }, actionWords(action)),
  );
}

function folded(label, fill, isOpen = false) {
  // Its content is made when it is first opened.
  const body = make("div", { class: "folded" });
  const details = make("details", { open: isOpen }, make("summary", {}, label), body);
  const open = () => {
    if (details.open && !body.hasChildNodes()) body.append(...fill());
  };
  details.addEventListener("toggle", open);
  open();
  return details;
}
