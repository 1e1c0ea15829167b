// The best of a sweep in five tries, of the file that `scaling learn sweep` reads: nothing else is asked.

(async () => {

const TRIES = 5;
const CHOICES = ["tensor", "stage", "zero", "sequences"]; // data is what remains of the GPUs
const at = (id) => document.getElementById(id);
let sweep = null;
let game = null; // { problem, tries: indices of rows }

function drawn(tag, attributes, ...inside) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside);
  return element;
}

// A time with three digits, as commands print it.
function shown(seconds) {
  const [number, unit] = seconds >= 1 ? [seconds, "s"] : [1e3 * seconds, "ms"];
  return `${Number(number.toPrecision(3))} ${unit}`;
}

const outcome = (row) => (row.seconds === null ? said("sweeps.out_of_memory") : shown(row.seconds));
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)}%`;
const written = (row) => CHOICES.map((name) => `${name}=${row[name]}`).join(", ");

// The rows of a problem by the names of their columns, and the times of those that ran.
function read(problem) {
  const name = (row) => Object.fromEntries(sweep.columns.map((column, i) => [column, row[i]]));
  const rows = problem.rows.map(name);
  const times = rows.filter((row) => row.seconds !== null).map((row) => row.seconds);
  return { ...problem, rows, times: times.sort((a, b) => a - b) };
}

const rank = (seconds) => 1 + game.problem.times.filter((time) => time < seconds).length;

// How often the best of five random configurations takes at most so long.
function luck(seconds) {
  const all = game.problem.rows.length;
  const worse = all - game.problem.times.filter((time) => time <= seconds).length;
  let none = 1;
  for (let i = 0; i < TRIES; i += 1) none *= Math.max(worse - i, 0) / (all - i);
  return 1 - none;
}

function best(indices) {
  const rows = indices.map((i) => game.problem.rows[i]).filter((row) => row.seconds !== null);
  return rows.reduce((least, row) => (least && least.seconds <= row.seconds ? least : row), null);
}

function start(i) {
  game = { problem: read(sweep.problems[i]), tries: [] };
  const { model, gpus, global_batch, seq_len, network, bus_bandwidth: bus, rows } = game.problem;
  const speed = (where) => (bus[where] / 1e9).toFixed(0);
  at("task").textContent =
    said("sweeps.task", { name: model.name, layers: model.n_layers, width: model.d_model, gpus, batch: global_batch,
      tokens: seq_len.toLocaleString("en"), network: TEXTS[`sweeps.${network}`] ?? network, inside: speed("inside"), across: speed("across"),
      count: rows.length });
  at("choices").replaceChildren(...CHOICES.map(field), dataField());
  at("game").hidden = false;
  narrow();
  show();
}

function field(name) {
  const select = made("select");
  select.id = name;
  select.addEventListener("change", narrow);
  const meaning = { zero: ` (${said("sweeps.zero")})`, sequences: ` (${said("sweeps.sequences")})` }[name] ?? "";
  return made("label", {}, name, made("span", {}, meaning), select);
}

function dataField() {
  return made("label", {}, "data", made("span", {}, ` (${said("sweeps.data")})`), Object.assign(made("output"), { id: "data" }));
}

// Each choice offers what was run with those before it; a value that there is stays chosen.
function narrow() {
  let left = game.problem.rows;
  for (const name of CHOICES) {
    const values = [...new Set(left.map((row) => row[name]))].sort((a, b) => a - b);
    const before = Number(at(name).value);
    at(name).replaceChildren(...values.map((value) => new Option(value, value)));
    at(name).value = values.includes(before) ? before : values[0];
    left = left.filter((row) => row[name] === Number(at(name).value));
  }
  at("data").textContent = left[0].data;
  game.chosen = game.problem.rows.indexOf(left[0]);
}

function attempt(event) {
  event.preventDefault();
  if (isOver()) return;
  if (game.tries.includes(game.chosen)) return showProblem(said("sweeps.tried_before"));
  game.tries.push(game.chosen);
  show();
}

function isOver() {
  const found = best(game.tries);
  return game.tries.length === TRIES || (found !== null && rank(found.seconds) === 1);
}

function showProblem(message) {
  at("problem").textContent = message;
  at("problem").hidden = !message;
}

function show() {
  const { problem, tries } = game;
  showProblem("");
  at("tries").replaceChildren(
    ...tries.map((i) => {
      const row = problem.rows[i];
      const place = row.seconds === null ? "" : `, ${said("sweeps.place", { rank: rank(row.seconds), of: problem.times.length })}`;
      return made("li", {}, made("b", {}, outcome(row)), `${place}: ${written(row)}`);
    }),
  );
  at("left").textContent = said("sweeps.left", { left: TRIES - tries.length, of: TRIES });
  at("try").disabled = isOver();
  at("again").hidden = !isOver();
  at("verdict").replaceChildren(...(isOver() ? verdict() : []));
}

// The student beside the rule of thumb, the planner and what was measured; and all that was tried.
function verdict() {
  const { problem, tries } = game;
  const yours = best(tries);
  const rows = problem.rows;
  const held = [
    [said("sweeps.your_best"), yours, "yours"],
    [sweep.choosers.rule, rows[problem.rule], ""],
    [sweep.choosers.planner, rows[problem.planner[0]], ""],
    [sweep.choosers.planner_best, best(problem.planner), ""],
    [sweep.choosers.left_out, rows[problem.left_out[0]], ""],
    [sweep.choosers.best, best(rows.map((_, i) => i)), ""],
  ];
  const line = ([name, row, className]) => {
    const head = made("th", { className }, name);
    head.scope = "row";
    const behind = row?.seconds ? `+${percent(row.seconds / problem.times[0] - 1)}` : "";
    const time = row ? outcome(row) : said("sweeps.all_out");
    return made("tr", {}, head, made("td", { className }, time), made("td", { className }, behind), made("td", {}, row ? written(row) : ""));
  };
  const title = made("h2", {}, yours ? said("sweeps.rank", { rank: rank(yours.seconds), of: problem.times.length }) : said("sweeps.nothing"));
  const chance = yours
    ? said("sweeps.luck", { tries: TRIES, count: rows.length, share: percent(luck(yours.seconds)) })
    : "";
  const scroll = made("div", { className: "scroll" }, made("table", { className: "held" }, made("tbody", {}, ...held.map(line))));
  Object.assign(scroll, { tabIndex: 0 });
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", said("sweeps.beside"));
  const out = rows.length - problem.times.length;
  const words = said("sweeps.all", { count: problem.times.length, out });
  return [title, made("p", {}, chance), scroll, picture(), made("p", { className: "small" }, words), legend()];
}

// All that ran in the order of their times, on a logarithmic scale.
function picture() {
  const { problem, tries } = game;
  const width = Math.max(at("game").clientWidth - 40, 240);
  const [height, left] = [200, 56];
  const { times } = problem;
  const [low, high] = [Math.log(times[0]), Math.log(times.at(-1))];
  const x = (place) => left + 10 + ((place - 1) / Math.max(times.length - 1, 1)) * (width - left - 24);
  const y = (seconds) => 12 + ((high - Math.log(seconds)) / (high - low || 1)) * (height - 24);
  const spot = (row) => [x(rank(row.seconds)), y(row.seconds)];
  const found = drawn("svg", { class: "all", viewBox: `0 0 ${width} ${height}`, role: "img" });
  const ends = `${shown(times[0])} - ${shown(times.at(-1))}`;
  found.setAttribute("aria-label", said("sweeps.picture", { count: times.length, ends }));
  for (const seconds of [times[0], Math.sqrt(times[0] * times.at(-1)), times.at(-1)]) {
    found.append(drawn("line", { class: "axis", x1: left, x2: width, y1: y(seconds), y2: y(seconds) }));
    found.append(drawn("text", { x: left - 8, y: y(seconds) + 4, "text-anchor": "end" }, shown(seconds)));
  }
  for (const row of problem.rows.filter((row) => row.seconds !== null)) {
    const [cx, cy] = spot(row);
    found.append(drawn("circle", { class: "ran", cx, cy, r: 2.5 }));
  }
  const marks = [["rule", problem.rows[problem.rule]], ["planner", problem.rows[problem.planner[0]]]];
  marks.push(...tries.map((i) => ["tried", problem.rows[i]]));
  for (const [kind, row] of marks) if (row.seconds !== null) found.append(mark(kind, ...spot(row)));
  return found;
}

// A square, a ring or a filled dot: shapes differ, not colours alone.
function mark(kind, x, y) {
  if (kind === "rule") return drawn("rect", { class: kind, x: x - 7, y: y - 7, width: 14, height: 14 });
  return drawn("circle", { class: kind, cx: x, cy: y, r: kind === "planner" ? 10 : 5 });
}

function legend() {
  const names = { tried: said("sweeps.your_tries"), rule: said("sweeps.rule"), planner: said("sweeps.planner") };
  const list = made("ul", { className: "legend" });
  for (const [kind, name] of Object.entries(names)) {
    list.append(made("li", {}, drawn("svg", { viewBox: "0 0 24 24", class: "all", "aria-hidden": "true" }, mark(kind, 12, 12)), name));
  }
  return list;
}

// The address holds the sweep: sweeps.html#3.57B-128
function showAddressed() {
  const found = sweep.problems.findIndex(({ name }) => `#${name}` === location.hash);
  at("chooser").value = Math.max(found, 0);
  start(Math.max(found, 0));
}

at("form").addEventListener("submit", attempt);
at("again").addEventListener("click", () => start(Number(at("chooser").value)));
at("chooser").addEventListener("change", () => {
  location.hash = sweep.problems[at("chooser").value].name;
});
addEventListener("hashchange", showAddressed);
try {
  sweep = await ask("sweeps");
  const title = ({ name, network, rows }) => said("sweeps.option", { name, count: rows.length, network: TEXTS[`sweeps.${network}`] ?? network });
  at("chooser").replaceChildren(...sweep.problems.map((problem, i) => new Option(title(problem), i)));
  at("chooser").disabled = false;
  at("source").textContent = `${sweep.about} ${said("sweeps.made", { version: sweep.made.scaling, date: sweep.made.date })}`;
  showAddressed();
} catch (error) {
  showProblem(error.message);
}
})();
