// Choose a compiled step, change the machine under it: Python prices it, this page shows it.

const at = (id) => document.getElementById(id);
// Stops of every slider of a figure, about even on a logarithmic scale.
const FACTORS = [0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.4, 1.6, 2, 2.5, 2.8, 3.2, 4];
const NAMES = Object.fromEntries(
  ["nvlink", "pcie", "network", "oversubscription", "peak", "memory_bandwidth", "memory", "latency", "launch"]
    .map((name) => [name, said(`explorer.${name}`)]),
);
const COLUMNS = ["name", "dtype", "size", "calls", "time", "exposed", "level", "algorithm"]
  .map((name) => [name, said(`explorer.column_${name}`)]);
const NUMBERS = ["size", "calls", "time", "exposed"];
const PAUSE = 90; // ms after the last movement of a slider until Python is asked
const MIDDLE = 0.5; // of the step, where the closer look is
const LARGEST = 900_000; // bytes of a calibration, below what the server takes

let groups = [];
const state = { program: "", factors: {}, collective: "", look: MIDDLE };
let calibration = null;
let isAsking = false; // Python computes
let isStale = false; // what it computes has changed meanwhile
let timer = 0;
let isSliding = false; // the slider of programs is moved: one entry of the history for all its stops

function showProblem(message) {
  at("problem").textContent = message;
  at("problem").hidden = !message;
}

// Where a program stands: [group, family, stop], numbers.
function place(key) {
  for (const [g, group] of groups.entries())
    for (const [f, family] of group.families.entries())
      for (const [s, stop] of family.stops.entries()) if (stop.key === key) return [g, f, s];
  return null;
}

// The comparison with the most programs, which the page begins with.
function largest() {
  const count = ({ families }) => families.reduce((sum, { stops }) => sum + stops.length, 0);
  return groups.reduce((most, group) => (count(group) > count(most) ? group : most));
}

// The address: what is chosen, so that it can be shared and gone back to.

function written() {
  const words = new URLSearchParams({ program: state.program, ...state.factors });
  if (state.collective) words.set("collective", state.collective);
  if (state.look !== MIDDLE) words.set("look", state.look);
  return `?${words}`;
}

function read() {
  const words = new URLSearchParams(location.search);
  state.program = words.get("program") ?? largest().families[0].stops[0].key;
  state.collective = words.get("collective") ?? "";
  state.look = words.has("look") ? number(words.get("look")) : MIDDLE;
  state.factors = {};
  for (const name of Object.keys(NAMES)) if (words.has(name)) state.factors[name] = number(words.get(name));
}

// The number that a text of the address writes; the text itself where it is none, for Python to refuse.
function number(text) {
  const found = text.trim() === "" ? NaN : Number(text);
  return Number.isFinite(found) ? found : text;
}

// The address of what is chosen now; a page that was opened from a file keeps its own.
function remember(isChoice) {
  try {
    history[isChoice ? "pushState" : "replaceState"](null, "", written());
  } catch {
    // a browser's rule for files
  }
}

// A new entry of the browser's history for a choice; none for each movement of a slider.
function changed(isChoice) {
  if (isChoice) remember(true);
  clearTimeout(timer);
  timer = setTimeout(price, PAUSE);
}

// The controls.

function showControls() {
  const found = place(state.program);
  if (!found) {
    at("group").selectedIndex = -1; // so that every comparison can be chosen
    return;
  }
  const [g, f, s] = found;
  const { families } = groups[g];
  const { stops } = families[f];
  at("group").value = g;
  at("family").replaceChildren(...families.map((family, i) => new Option(family.name, i)));
  at("family").value = f;
  at("family").disabled = families.length === 1;
  at("stop").max = stops.length - 1;
  at("stop").value = s;
  at("stop").disabled = stops.length === 1;
  at("stop").setAttribute("aria-valuetext", stops[s].label);
  at("stop-name").textContent = stops[s].label;
  at("ticks").replaceChildren(...stops.map((stop, i) => made("li", {}, tick(stop, i === s))));
  showFigures(stops[s].figures);
}

function tick(stop, isCurrent) {
  const button = made("button", { type: "button", tabIndex: -1, textContent: stop.label });
  button.setAttribute("aria-current", isCurrent);
  button.addEventListener("click", () => choose(stop.key));
  return button;
}

function choose(key, isChoice = true) {
  state.program = key;
  const [g, f, s] = place(key);
  const known = groups[g].families[f].stops[s].figures;
  for (const name of Object.keys(state.factors)) if (!known.includes(name)) delete state.factors[name];
  state.collective = "";
  showControls();
  changed(isChoice);
}

function makeFigures() {
  at("figures").replaceChildren(
    ...Object.entries(NAMES).map(([name, words]) => {
      const value = made("output", { id: `${name}-value`, ariaLive: "off" });
      const slider = made("input", { id: name, type: "range", min: 0, max: FACTORS.length - 1, step: 1 });
      slider.addEventListener("input", () => move(name, FACTORS[slider.value]));
      slider.addEventListener("change", () => remember(false));
      value.setAttribute("for", name);
      const label = made("label", { htmlFor: name, textContent: words });
      return made("div", { id: `${name}-row` }, label, slider, value);
    }),
  );
}

function move(name, factor) {
  if (factor === 1) delete state.factors[name];
  else state.factors[name] = factor;
  showFigure(name);
  changed(false);
}

function showFigures(known) {
  for (const name of Object.keys(NAMES)) {
    at(`${name}-row`).hidden = !known.includes(name);
    showFigure(name);
  }
}

function showFigure(name) {
  const factor = state.factors[name] ?? 1;
  const distances = FACTORS.map((stop) => Math.abs(Math.log(stop / factor)));
  at(name).value = distances.indexOf(Math.min(...distances));
  at(name).setAttribute("aria-valuetext", said("explorer.times", { factor }));
  at(`${name}-value`).textContent = `x${factor}`;
  at(`${name}-value`).classList.toggle("other", factor !== 1);
}

// Asking.

// Asks for what is chosen now. While Python computes nothing else is asked: what was chosen meanwhile
// follows, and the answer before it is not shown.
async function price() {
  clearTimeout(timer);
  isStale = isAsking;
  if (isAsking) return;
  isAsking = true;
  at("results").setAttribute("aria-busy", "true");
  try {
    const { program, factors, collective, look } = state;
    const question = { program, ...factors };
    if (collective) question.collective = collective;
    if (look !== MIDDLE) question.look = look;
    if (calibration !== null) question.calibration = calibration;
    const answer = await ask("explorer", question);
    if (!isStale) {
      showProblem("");
      show(answer);
      remember(false);
    }
  } catch (error) {
    if (!isStale) showProblem(error.message);
  }
  isAsking = false;
  at("results").setAttribute("aria-busy", isStale);
  if (isStale) price();
}

// The answer.

function show(answer) {
  const { step, memory } = answer;
  at("seconds").textContent = step.text;
  at("seconds").dataset.seconds = step.seconds;
  at("range").textContent = `${step.range}, ${step.grade}`;
  at("change").textContent = step.change;
  at("fits").textContent = memory.fits === false ? said("explorer.no_fit", { memory: memory.short }) : memory.text;
  at("fits").className = `fits ${memory.fits === false ? "no" : memory.fits ? "" : "unknown"}`;
  at("numbers").replaceChildren(
    ...answer.figures.map(({ name, text }) =>
      made("div", {}, made("dt", { textContent: name }), made("dd", { textContent: text }))),
  );
  at("title").textContent = answer.title;
  at("bottleneck").textContent = answer.bottleneck;
  at("warnings").replaceChildren(...answer.warnings.map((text) => made("li", { textContent: text })));
  at("command").textContent = answer.command;
  showPictures(answer.pictures);
  showTable(answer.collectives, answer.chosen);
  showChosen(answer.chosen, answer.pictures.find(({ name }) => name === "cluster"));
  at("head").hidden = at("results").hidden = false;
}

// Pictures stay where they are: only what changed in them is written, so that nothing jumps.
function showPictures(pictures) {
  const wanted = pictures.filter(({ name }) => name !== "cluster");
  const names = new Set(wanted.map(({ name }) => `picture-${name}`));
  for (const old of [...at("pictures").children]) if (!names.has(old.id)) old.remove();
  for (const [i, picture] of wanted.entries()) {
    const id = `picture-${picture.name}`;
    const found = at(id) ?? figure(id, picture.name === "look");
    fill(found, picture);
    if (at("pictures").children[i] !== found) at("pictures").insertBefore(found, at("pictures").children[i]);
  }
}

function figure(id, hasLook) {
  const element = made("figure", { id }, made("h3"), made("div"), made("figcaption"));
  element.children[1].setAttribute("role", "img");
  element.children[1].tabIndex = 0; // on a phone it is moved sideways
  if (hasLook) element.append(lookSlider());
  return element;
}

function fill(element, { title, svg, words }) {
  const [heading, drawing, caption] = element.children;
  heading.textContent = title;
  drawing.innerHTML = svg; // Python's drawing, whose words are escaped there
  drawing.setAttribute("aria-label", `${title}. ${words}`);
  caption.textContent = words;
}

function lookSlider() {
  const slider = made("input", { id: "look", type: "range", min: 0, max: 1, step: 0.01, value: state.look });
  slider.addEventListener("input", () => {
    state.look = Number(slider.value);
    changed(false);
  });
  return made("div", {}, made("label", { htmlFor: "look", textContent: said("explorer.look") }), slider);
}

function showTable(rows, chosen) {
  const hadFocus = at("collectives").contains(document.activeElement);
  const head = made("tr", {}, ...COLUMNS.map(([name, words]) =>
    made("th", { scope: "col", textContent: words, className: NUMBERS.includes(name) ? "number" : "" })));
  at("collectives").replaceChildren(made("thead", {}, head), made("tbody", {}, ...rows.map((row) => tableRow(row, chosen))));
  if (hadFocus) at("collectives").querySelector("tr[aria-current=true] button")?.focus();
}

function tableRow(row, chosen) {
  const isCurrent = row.id === chosen?.id;
  const button = made("button", { type: "button", textContent: row.name });
  button.setAttribute("aria-pressed", isCurrent);
  const cells = COLUMNS.slice(1).map(([name]) =>
    made("td", { textContent: row[name], className: NUMBERS.includes(name) ? "number" : "" }));
  const element = made("tr", {}, made("th", { scope: "row" }, button), ...cells);
  element.setAttribute("aria-current", isCurrent);
  element.addEventListener("click", () => {
    state.collective = row.id;
    changed(true);
  });
  return element;
}

function showChosen(chosen, picture) {
  if (!chosen) {
    at("chosen").replaceChildren(made("p", { textContent: said("explorer.silent") }));
    return;
  }
  const facts = [
    [said("explorer.who"), chosen.groups],
    [said("explorer.bytes"), chosen.bytes],
    [said("explorer.arrays"), chosen.arrays],
    [said("explorer.seconds"), chosen.formula],
    ...chosen.levels.map((l) => [l.level, `${l.bytes} over ${l.bandwidth}: ${l.time}`]),
  ].filter(([, text]) => text);
  const list = made("dl", { id: "facts" });
  for (const [name, text] of facts)
    list.append(made("dt", { textContent: name }), made("dd", { textContent: text }));
  list.append(made("dt", { textContent: said("explorer.origin") }), ...chosen.origins.map(origin));
  const drawn = figure("picture-cluster", false);
  fill(drawn, picture);
  at("chosen").replaceChildren(made("div", {}, made("h3", { textContent: chosen.title }), list), drawn);
}

function origin({ where, calls, line, text }) {
  const element = made("dd", {}, said("explorer.calls", { where, calls }));
  if (line) element.append(`: ${line} `, made("code", { textContent: text }));
  return element;
}

// A calibration of the reader's own.

async function take(file) {
  if (!file) return;
  if (file.size > LARGEST) {
    showProblem(said("explorer.too_large", { name: file.name, bytes: file.size, most: LARGEST }));
    return;
  }
  setCalibration(await file.text(), file.name);
}

function setCalibration(text, name) {
  calibration = text;
  at("calibrated").hidden = text === null;
  at("calibrated-name").textContent = name;
  changed(false);
}

function listen() {
  at("controls").addEventListener("submit", (event) => event.preventDefault());
  at("group").addEventListener("change", () => choose(groups[at("group").value].families[0].stops[0].key));
  at("family").addEventListener("change", () => choose(alike(at("group").value, at("family").value)));
  at("stop").addEventListener("input", () => {
    const { stops } = groups[at("group").value].families[at("family").value];
    choose(stops[at("stop").value].key, !isSliding);
    isSliding = true;
  });
  at("stop").addEventListener("change", () => (isSliding = false));
  at("reset").addEventListener("click", () => {
    state.factors = {};
    showControls();
    changed(true);
  });
  at("calibration").addEventListener("change", () => take(at("calibration").files[0]));
  at("without").addEventListener("click", () => {
    at("calibration").value = "";
    setCalibration(null, "");
    at("calibration").focus();
  });
  at("copy").addEventListener("click", copy);
  addEventListener("popstate", restore);
  for (const [name, isOver] of [["dragover", true], ["dragleave", false], ["drop", false]])
    at("drop").addEventListener(name, (event) => {
      event.preventDefault();
      at("drop").classList.toggle("over", isOver);
      if (name === "drop") take(event.dataTransfer.files[0]);
    });
}

// The program of another family that is at the same stop, else its first.
function alike(g, f) {
  const { stops } = groups[g].families[f];
  const label = at("stop-name").textContent;
  return (stops.find((stop) => stop.label === label) ?? stops[0]).key;
}

async function copy() {
  try {
    await navigator.clipboard.writeText(at("command").textContent);
    at("copy").textContent = said("explorer.copied");
  } catch {
    getSelection().selectAllChildren(at("command"));
    at("copy").textContent = said("explorer.selected");
  }
}

function restore() {
  read();
  showControls();
  if (at("look")) at("look").value = state.look;
  price();
}

(async () => {
  try {
    groups = await ask("programs");
    at("group").replaceChildren(...groups.map(({ group }, i) => new Option(group, i)));
    at("group").disabled = false;
    makeFigures();
    listen();
    restore();
  } catch (error) {
    showProblem(error.message);
  }
})();
