// Asks Python. What answers is named in the page: <html data-backend="server">, the process that
// sends the pages, or "pyodide", a Python in the browser (worker.js). No formula is written here.

const backend = document.documentElement.dataset.backend;
const waiting = new Map(); // number of a question -> what to do with its answer
let asked = 0;
let worker = null;

// Returns the answer; throws an Error with the message that the reader is shown.
export async function ask(what, given = {}) {
  const text = await (backend === "pyodide" ? askWorker : askServer)(
    JSON.stringify({ what, with: given }),
  );
  const found = JSON.parse(text);
  if ("error" in found) throw new Error(found.error);
  return found.answer;
}

async function askServer(request) {
  const headers = { "Content-Type": "application/json" };
  try {
    return await (await fetch("/ask", { method: "POST", headers, body: request })).text();
  } catch {
    throw new Error("scaling learn has ended: start it again, then reload this page");
  }
}

function askWorker(request) {
  worker ??= startWorker();
  asked += 1;
  const number = asked;
  worker.postMessage({ number, request });
  return new Promise((done, failed) => waiting.set(number, { done, failed }));
}

function startWorker() {
  const started = new Worker("worker.js", { type: "module" });
  started.onmessage = ({ data }) => {
    if ("state" in data) return showState(data.state);
    const { done, failed } = waiting.get(data.number);
    waiting.delete(data.number);
    if ("failure" in data) failed(new Error(data.failure));
    else done(data.answer);
  };
  started.onerror = (event) => {
    for (const { failed } of waiting.values()) failed(new Error(event.message));
    waiting.clear();
  };
  return started;
}

// A line at the foot of the page while Python loads; "" takes it away.
function showState(text) {
  let line = document.getElementById("loading");
  if (!line) {
    line = Object.assign(document.createElement("p"), { id: "loading" });
    line.setAttribute("role", "status");
    document.body.append(line);
  }
  line.textContent = text;
  line.hidden = !text;
}
