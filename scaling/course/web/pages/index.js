// The first page: its picture, and what is found by a word.

const at = (id) => document.getElementById(id);
const MOST = 12; // that are listed
let entries = null; // a promise, from the first letter on

// The entries that have all words, those first that have them in their title.
function matching(all, words) {
  const has = (text, word) => text.toLowerCase().includes(word);
  const found = all.filter(({ title, text }) => words.every((word) => has(`${title} ${text}`, word)));
  const score = ({ title }) => words.filter((word) => has(title, word)).length;
  return found.sort((one, other) => score(other) - score(one));
}

async function find() {
  const words = at("words").value.toLowerCase().split(/\s+/).filter(Boolean);
  entries ??= ask("search");
  try {
    const found = words.length ? matching(await entries, words) : [];
    at("count").textContent = !words.length ? "" : found.length ? said("search.found", { number: found.length }) : said("search.none");
    at("found").replaceChildren(...found.slice(0, MOST).map((one) => made("li", {}, ...line(one, words[0]))));
  } catch (error) {
    at("count").textContent = error.message;
  }
}

// A link, what it leads to, and the words around the first that was looked for.
function line({ kind, title, text, address }, word) {
  const place = Math.max(0, text.toLowerCase().indexOf(word) - 40);
  const near = (place ? "... " : "") + text.slice(place, place + 140);
  const where = address.startsWith("docs/") ? document.documentElement.dataset.up ?? "" : "";
  const what = made("span", { className: "kind" }, TEXTS[`search.${kind}`] ?? kind);
  return [made("a", { href: where + address }, title), " ", what, made("div", { className: "small" }, near)];
}

async function showPicture() {
  const { name, svg } = await ask("splits");
  const [drawing, caption] = at("picture").children;
  drawing.innerHTML = svg; // Python's drawing, whose words are escaped there
  caption.textContent = said("index.picture", { step: name });
}

at("search").addEventListener("submit", (event) => event.preventDefault());
at("words").addEventListener("input", find);
showPicture().catch(() => (at("picture").hidden = true)); // the page does without
