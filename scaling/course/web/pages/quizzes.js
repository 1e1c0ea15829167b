// One question at a time: the reader's guess, its likely mistake, a second try, then the answer.
// A guess is judged as scaling.course.quizzes.common_mistakes does it.

const at = (id) => document.getElementById(id);
const SEEN = "scaling-quizzes"; // in the browser's storage: id -> whether the last guess was right
const WORDS = 70; // letters of a question in the list
let quizzes = [];
let current = 0;
let answer = null; // to the current question, once it was asked for
let tries = 0;

function seen() {
  try {
    return JSON.parse(localStorage.getItem(SEEN)) ?? {};
  } catch {
    return {}; // storage is switched off, or holds something else
  }
}

function write(marks) {
  try {
    localStorage.setItem(SEEN, JSON.stringify(marks));
  } catch {
    // without storage nothing is marked
  }
}

function showProblem(message) {
  at("problem").textContent = message;
  at("problem").hidden = !message;
}

// The list of all questions, by chapter, with what was right and what was wrong.
function fillList() {
  const marks = seen();
  const right = (rows) => rows.filter(([, { id }]) => marks[id]).length;
  const rows = [...quizzes.entries()];
  const chapters = Map.groupBy(rows, ([, quiz]) => quiz.chapter);
  at("list").replaceChildren(
    ...[...chapters].map(([chapter, some]) => {
      const score = said("quizzes.of_chapter", { right: right(some), all: some.length });
      const head = made("summary", {}, chapter, " ", made("span", { className: "small" }, score));
      const list = made("ul", {}, ...some.map(([i, quiz]) => made("li", {}, link(quiz, i, marks[quiz.id]))));
      return made("details", { open: some.some(([i]) => i === current) }, head, list);
    }),
  );
  const line = at("list").querySelector("[aria-current]");
  at("choose").scrollTop = line.offsetTop - at("choose").clientHeight / 3; // where the list is beside
  const wrong = rows.filter(([, { id }]) => marks[id] === false).length;
  const isKept = Object.keys(marks).length > 0;
  at("score").textContent = isKept ? said("quizzes.score", { right: right(rows), all: rows.length, wrong }) : "";
  at("forget").hidden = !isKept;
}

function link(quiz, i, right) {
  const words = quiz.question.length > WORDS ? `${quiz.question.slice(0, WORDS).replace(/\s\S*$/, "")} ...` : quiz.question;
  const mark = right === undefined ? [] : [made("span", { className: right ? "mark right" : "mark wrong",
    title: said(right ? "quizzes.was_right" : "quizzes.was_wrong") }, right ? "\u2713 " : "\u2717 ")];
  const element = made("a", { href: `#${quiz.id}` }, ...mark, made("b", {}, `${name(quiz)} `), words);
  if (i === current) element.setAttribute("aria-current", "true");
  return element;
}

// What the guide calls a question within its chapter: "quiz 2 Q3".
function name(quiz) {
  return quiz.section.split(": ").slice(1).join(": ") || quiz.section;
}

function show(i) {
  current = i;
  answer = null;
  tries = 0;
  const quiz = quizzes[i];
  at("where").textContent = said("quizzes.place", { section: quiz.section, number: i + 1, all: quizzes.length });
  at("text").textContent = quiz.question;
  at("fields").replaceChildren(...quiz.numbers.map(field));
  at("verdicts").replaceChildren();
  showProblem("");
  at("question").hidden = false;
  at("show").hidden = true;
  at("previous").disabled = i === 0;
  at("next").disabled = i === quizzes.length - 1;
  fillList();
}

function field({ name, unit }) {
  const input = made("input", { type: "text", inputMode: "decimal", required: true, maxLength: 40 });
  return made("label", {}, `${name} `, made("span", {}, `(${unit || said("quizzes.ratio")})`), input);
}

// The number that was written, `1,040` or `2e-3`.
function number(text) {
  const plain = text.trim().replace(/^[+-]?\d{1,3}(,\d{3})+(?![\d,])/, (found) => found.replaceAll(",", ""));
  const found = plain === "" || /^[+-]?0[xbo]/i.test(plain) ? NaN : Number(plain);
  if (!Number.isFinite(found)) throw new Error(said("quizzes.no_number", { text }));
  return found;
}

// What a guess was: right, or too high or low by a factor that mistakes explain; `hint` tells no factor.
function judged(guess, { answer, tolerance, mistakes }, { near, far }) {
  const ratio = answer ? guess / answer : Infinity;
  if (guess === answer || (answer && Math.abs(ratio - 1) <= tolerance)) {
    const off = answer ? 100 * (ratio - 1) : 0;
    return { isRight: true, words: said("quizzes.right", { off: `${off < 0 ? "" : "+"}${off.toFixed(1)}%` }), found: [] };
  }
  if (ratio <= 0) return { isRight: false, words: said("quizzes.below"), hint: said("quizzes.below"), found: [] };
  const apart = Math.max(ratio, 1 / ratio);
  const by = far.find(([least]) => apart > least)[1];
  const hint = said(ratio > 1 ? "quizzes.too_high" : "quizzes.too_low", { by });
  const isNear = (factor) => Math.abs(ratio / factor - 1) <= near;
  const explains = ({ factor, side }) => (side !== "low" && isNear(factor)) || (side !== "high" && isNear(1 / factor));
  const found = mistakes.filter(explains);
  const words = said(ratio > 1 ? "quizzes.high" : "quizzes.low", { factor: short(apart) });
  return { isRight: false, hint, words: found.length ? words : `${words}; ${said("quizzes.unknown")}`, found };
}

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0, roundingMode: "halfEven" });

// Three digits, and a large factor whole, as Python writes them.
function short(value) {
  if (!Number.isFinite(value)) return "inf";
  if (value >= 100 && value < 1e9) return WHOLE.format(value);
  const [digits, power] = value.toExponential(2).split("e").map(Number);
  if (power < -4 || power > 2) return `${digits}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
  return String(Number(value.toPrecision(3)));
}

function verdictBox(row, verdict, isShown) {
  const box = made("div", { className: `verdict ${verdict ? (verdict.isRight ? "right" : "wrong") : ""}` });
  box.append(made("h3", {}, row.name));
  if (verdict) box.append(made("p", { className: "said" }, isShown || verdict.isRight ? verdict.words : verdict.hint));
  if (verdict?.found.length) {
    box.append(made("p", {}, said("quizzes.perhaps")), made("ul", {}, ...verdict.found.map(mistake)));
  }
  if (!isShown) return box;
  const guide = row.book_shown ? `; ${said("quizzes.guide", { number: row.book_shown })}` : "";
  box.append(made("p", {}, made("b", {}, row.shown), guide));
  if (row.reason) box.append(made("p", {}, said("quizzes.differ", { reason: row.reason })));
  return box;
}

function mistake({ sentence, check }) {
  const small = made("div", { className: "small" }, said("quizzes.try", { check }));
  return made("li", {}, sentence[0].toUpperCase() + sentence.slice(1), small);
}

// Formulas and commands of all numbers, each once; of a question with one number they are open.
function computed(rows) {
  const formulas = [...new Set(rows.flatMap((row) => row.formulas))];
  const commands = [...new Set(rows.flatMap((row) => row.commands))];
  const lines = formulas.map((text) => made("p", {}, made("code", {}, text)));
  const head = made("summary", {}, said("quizzes.computed"));
  return made("details", { open: rows.length === 1 }, head, ...lines, ...commands.map(command));
}

function command(line) {
  const button = made("button", { type: "button" }, said("quizzes.copy"));
  button.setAttribute("aria-label", said("quizzes.copy_label"));
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(line);
      button.textContent = said("quizzes.copied");
    } catch {
      button.textContent = said("quizzes.select"); // the browser does not let this page copy
    }
  });
  const words = line.split(" ").flatMap((word) => [made("span", {}, word), " "]);
  return made("div", { className: "command" }, made("code", {}, ...words), button);
}

// The answer to the current question; null where the reader went on meanwhile.
async function answered() {
  const { id } = quizzes[current];
  answer ??= await ask("quiz", { id });
  return id === quizzes[current].id ? answer : null;
}

// A wrong guess is told its mistakes at first; a second one, or the button, shows the answer.
async function check(event) {
  event.preventDefault();
  await doing(async () => {
    const guesses = [...at("fields").querySelectorAll("input")].map((input) => number(input.value));
    const found = await answered();
    if (!found) return;
    const verdicts = found.numbers.map((row, i) => judged(guesses[i], row, found));
    const isRight = verdicts.every((one) => one.isRight);
    tries += 1;
    write({ ...seen(), [found.id]: isRight });
    showVerdicts(found, verdicts, isRight || tries > 1);
    fillList();
  });
}

async function showAnswer() {
  await doing(async () => {
    const found = await answered();
    if (found) showVerdicts(found, found.numbers.map(() => null), true);
  });
}

async function doing(action) {
  const buttons = at("form").querySelectorAll("button");
  for (const button of buttons) button.disabled = true;
  try {
    showProblem("");
    await action();
  } catch (error) {
    showProblem(error.message);
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}

function showVerdicts({ numbers, note }, verdicts, isShown) {
  at("verdicts").replaceChildren(...numbers.map((row, i) => verdictBox(row, verdicts[i], isShown)));
  at("show").hidden = isShown;
  if (!isShown) at("verdicts").append(made("p", { className: "small" }, said("quizzes.again")));
  if (isShown) at("verdicts").append(computed(numbers));
  if (isShown && note) at("verdicts").append(made("p", { className: "small" }, note));
}

// The address holds the question: quizzes.html#gpu-q2.3
function showAddressed() {
  const found = quizzes.findIndex((quiz) => `#${quiz.id}` === location.hash);
  show(Math.max(found, 0));
}

function go(i) {
  location.hash = quizzes[i].id;
}

(async () => {
  at("form").addEventListener("submit", check);
  at("show").addEventListener("click", showAnswer);
  at("previous").addEventListener("click", () => go(current - 1));
  at("next").addEventListener("click", () => go(current + 1));
  at("forget").addEventListener("click", () => {
    write({});
    fillList();
  });
  at("choose").open = matchMedia("(min-width: 64rem)").matches;
  try {
    quizzes = await ask("quizzes");
    addEventListener("hashchange", showAddressed);
    showAddressed();
  } catch (error) {
    showProblem(error.message);
  }
})();
