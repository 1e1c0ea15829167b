// A Python in the browser: Pyodide from its CDN, and this project's own wheel from the site.

import { PYODIDE, WHEEL } from "./pyodide.js";

const WITHOUT_NUMPY = ["quizzes", "quiz", "glossary"]; // what is asked: answered by plain Python
const LOADING = "Loading Python, about 10 MB once ...";
let python = null;
let numpy = null;

// Returns scaling.web.ask.ask.
async function load() {
  const { loadPyodide } = await import(`${PYODIDE}pyodide.mjs`);
  const pyodide = await loadPyodide({ indexURL: PYODIDE });
  pyodide.unpackArchive(await (await fetch(WHEEL)).arrayBuffer(), "wheel");
  const answers = new Uint8Array(await (await fetch("answers.json")).arrayBuffer());
  const folder = pyodide.runPython("import scaling.web as web; web.__path__[0]");
  pyodide.FS.writeFile(`${folder}/answers.json`, answers);
  return pyodide;
}

async function answer(request) {
  postMessage({ state: LOADING });
  try {
    python ??= load();
    const pyodide = await python;
    if (!WITHOUT_NUMPY.includes(JSON.parse(request).what)) await (numpy ??= pyodide.loadPackage("numpy"));
    return pyodide.pyimport("scaling.web.ask").ask(request);
  } finally {
    postMessage({ state: "" });
  }
}

onmessage = async ({ data: { number, request } }) => {
  try {
    postMessage({ number, answer: await answer(request) });
  } catch (error) {
    console.error(error);
    postMessage({ number, failure: error.message.trim().split("\n").at(-1) });
  }
};
