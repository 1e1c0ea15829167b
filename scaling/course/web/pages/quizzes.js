// One question at a time: the reader's guess, then what Python says to it.

import { ask } from "./ask.js";

const at = (id) => document.getElementById(id);
const SEEN = "scaling-quizzes"; // in the browser's storage: id -> whether the last guess was right
let quizzes = [];
let current = 0;

// An element with text or children.
function made(tag, className, ...inside) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...inside);
  return element;
}

function seen() {
  try {
    return JSON.parse(localStorage.getItem(SEEN)) ?? {};
  } catch {
    return {}; // storage is switched off, or holds something else
  }
}

function remember(id, right) {
  try {
    localStorage.setItem(SEEN, JSON.stringify({ ...seen(), [id]: right }));
  } catch {
    // without storage nothing is marked
  }
}

function showProblem(message) {
  at("problem").textContent = message;
  at("problem").hidden = !message;
}

// The list of all questions, by chapter; answered ones have a mark.
function fillChooser() {
  const marks = seen();
  const chapters = Map.groupBy(quizzes.entries(), ([, quiz]) => quiz.chapter);
  at("chooser").replaceChildren(
    ...[...chapters].map(([chapter, rows]) => {
      const group = Object.assign(document.createElement("optgroup"), { label: chapter });
      group.append(...rows.map(([i, quiz]) => new Option(title(quiz, marks[quiz.id]), i)));
      return group;
    }),
  );
  at("chooser").value = current;
}

function title(quiz, right) {
  const mark = right === undefined ? "" : right ? "\u2713 " : "\u2717 ";
  return mark + (quiz.section.split(": ").slice(1).join(": ") || quiz.section) + ` (${quiz.id})`;
}

function show(i) {
  current = i;
  const quiz = quizzes[i];
  at("where").textContent = `${quiz.section}, ${i + 1} of ${quizzes.length}`;
  at("text").textContent = quiz.question;
  at("fields").replaceChildren(...quiz.numbers.map(field));
  at("verdicts").replaceChildren();
  showProblem("");
  at("question").hidden = false;
  at("previous").disabled = i === 0;
  at("next").disabled = i === quizzes.length - 1;
  fillChooser();
}

function field({ name, unit }) {
  const input = made("input");
  Object.assign(input, { type: "text", inputMode: "decimal", required: true, maxLength: 40 });
  return made("label", "", `${name} `, made("span", "", `(${unit || "a ratio"})`), input);
}

// What is said to each number; commands stand below it, or below all where all have the same.
function verdicts(rows) {
  const same = rows.every((row) => String(row.commands) === String(rows[0].commands));
  const boxes = rows.map(verdict);
  rows.forEach((row, i) => same || boxes[i].append(...row.commands.map(command)));
  return same ? [...boxes, ...rows[0].commands.map(command)] : boxes;
}

function verdict(row) {
  const said = row.verdict.split("\n")[0];
  const box = made("div", `verdict ${row.right ? "right" : "wrong"}`);
  box.append(made("h2", "", row.name), made("p", "said", said[0].toUpperCase() + said.slice(1)));
  if (row.slips.length) {
    box.append(made("p", "", "Perhaps"), made("ul", "", ...row.slips.map(slip)));
  }
  const guide = row.book_shown ? `; the guide prints ${row.book_shown}` : "";
  box.append(made("p", "", made("b", "", row.shown), guide));
  if (row.reason) box.append(made("p", "", `They differ: ${row.reason}`));
  for (const formula of row.formulas) box.append(made("p", "", made("code", "", formula)));
  return box;
}

function slip({ sentence, check }) {
  return made("li", "", sentence, made("div", "small", `Check: ${check}`));
}

function command(line) {
  const button = made("button", "", "Copy");
  button.type = "button";
  button.setAttribute("aria-label", "Copy this command");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(line);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select it"; // the browser does not let this page copy
    }
  });
  const words = line.split(" ").flatMap((word) => [made("span", "", word), " "]);
  return made("div", "command", made("code", "", ...words), button);
}

async function check(event) {
  event.preventDefault();
  const { id } = quizzes[current];
  const guesses = [...at("fields").querySelectorAll("input")].map((input) => input.value);
  const button = at("form").querySelector("button");
  button.disabled = true;
  try {
    const { numbers, note } = await ask("quiz", { id, guesses });
    if (id !== quizzes[current].id) return; // the reader went on
    showProblem("");
    at("verdicts").replaceChildren(...verdicts(numbers));
    if (note) at("verdicts").append(made("p", "small", note));
    remember(id, numbers.every((row) => row.right));
    fillChooser();
  } catch (error) {
    showProblem(error.message);
  } finally {
    button.disabled = false;
  }
}

// The address holds the question: quizzes.html#gpu-q2.3
function showAddressed() {
  const found = quizzes.findIndex((quiz) => `#${quiz.id}` === location.hash);
  show(Math.max(found, 0));
}

function go(i) {
  location.hash = quizzes[i].id;
}

at("form").addEventListener("submit", check);
at("previous").addEventListener("click", () => go(current - 1));
at("next").addEventListener("click", () => go(current + 1));
at("chooser").addEventListener("change", () => go(Number(at("chooser").value)));
addEventListener("hashchange", showAddressed);
try {
  quizzes = await ask("quizzes");
  at("chooser").disabled = false;
  showAddressed();
} catch (error) {
  showProblem(error.message);
}
