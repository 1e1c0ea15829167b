// Asks Python. Who answers is named in the page: <html data-backend="server">, the process that
// sends the pages, or "pyodide": answers that the site brings (stored/NAME.js), and for all others
// a Python in the browser (worker.js). No formula is written here.

// A text of the pages (texts.js) with its `{name}` filled.
function said(name, filled = {}) {
  return TEXTS[name].replace(/\{(\w+)\}/g, (whole, key) => filled[key] ?? whole);
}

// An element with text or children.
function made(tag, properties = {}, ...inside) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...inside);
  return element;
}

// What a script of stored/ calls: its name, and JSON, or the base64 of JSON that gzip has packed.
const kept = {};
function keep(name, value) {
  kept[name] = value;
}

const SPOKEN = ["quizzes", "answers", "search", "sweeps", "programs"]; // stored answers in the language of the page

const { ask } = (() => {
  const page = document.documentElement;
  const up = page.dataset.up ?? ""; // to what pages of all languages share
  const isServed = page.dataset.backend === "server";
  const waiting = new Map(); // number of a question -> what to do with its answer
  let asked = 0;
  let worker = null;

  // Returns the answer; throws an Error with the message that the reader is shown.
  async function ask(what, given = {}) {
    const found = isServed ? undefined : await stored(what, given);
    if (found !== undefined) return found;
    const text = await (isServed ? askServer : askWorker)(JSON.stringify({ what, with: given, lang: page.lang }));
    const answer = JSON.parse(text);
    if ("error" in answer) throw new Error(answer.error);
    return answer.answer;
  }

  async function askServer(request) {
    const headers = { "Content-Type": "application/json" };
    try {
      return await (await fetch("/ask", { method: "POST", headers, body: request })).text();
    } catch {
      throw new Error(said("ask.ended"));
    }
  }

  // The answer that the site brings; undefined where it has none.
  async function stored(what, given) {
    const { program, id, ...rest } = given;
    if (Object.keys(rest).length) return undefined;
    if (what === "quiz") return (await loaded("answers"))?.[id];
    return loaded(program === undefined ? what : `program-${program}`);
  }

  async function loaded(name) {
    if (!(name in kept) && /^[\w.-]+$/.test(name)) {
      const script = made("script", { src: `${SPOKEN.includes(name) ? "" : up}stored/${name}.js` });
      await new Promise((done) => {
        script.onload = script.onerror = done;
        document.head.append(script);
      });
      script.remove();
    }
    if (typeof kept[name] === "string") kept[name] = JSON.parse(await unpacked(kept[name]));
    return kept[name];
  }

  function unpacked(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  function askWorker(request) {
    if (location.protocol === "file:") throw new Error(said("ask.from_file"));
    worker ??= startWorker();
    asked += 1;
    const number = asked;
    worker.postMessage({ number, request });
    return new Promise((done, failed) => waiting.set(number, { done, failed }));
  }

  function startWorker() {
    const started = new Worker(`${up}worker.js`, { type: "module" });
    started.onmessage = ({ data }) => {
      if ("loading" in data) return showLoading(data.loading);
      const { done, failed } = waiting.get(data.number);
      waiting.delete(data.number);
      if ("absent" in data) failed(new Error(said("ask.absent", data.absent)));
      else if ("failure" in data) failed(new Error(data.failure));
      else done(data.answer);
    };
    started.onerror = (event) => {
      for (const { failed } of waiting.values()) failed(new Error(event.message));
      waiting.clear();
    };
    return started;
  }

  // A line at the foot of the page while Python loads, with the megabytes of it; 0 takes it away.
  function showLoading(megabytes) {
    let line = document.getElementById("loading");
    if (!line) {
      line = made("p", { id: "loading", role: "status" });
      document.body.append(line);
    }
    line.textContent = said("ask.loading", { megabytes });
    line.hidden = !megabytes;
  }

  return { ask };
})();
