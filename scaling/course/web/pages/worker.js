// A Python in the browser: Pyodide from its CDN, and this project's own wheel from the site.

import { PYODIDE, WHEEL } from "./pyodide.js";

const WITHOUT_NUMPY = ["quizzes", "quiz"]; // what is asked: answered by plain Python
const LOADING = "Loading Python, about 10 MB once ...";
const loads = {}; // name -> a promise: each is loaded once

// Returns Pyodide with this project in it.
async function load() {
  const pyodide = await started();
  pyodide.unpackArchive(await (await fetch(WHEEL)).arrayBuffer(), "wheel");
  const answers = new Uint8Array(await (await fetch("answers.json")).arrayBuffer());
  const folder = pyodide.runPython("import scaling.course.web as web; web.__path__[0]");
  pyodide.FS.writeFile(`${folder}/answers.json`, answers);
  return pyodide;
}

async function started() {
  try {
    const { loadPyodide } = await import(`${PYODIDE}pyodide.mjs`);
    return await loadPyodide({ indexURL: PYODIDE });
  } catch (error) {
    console.error(error);
    throw absent("Python");
  }
}

// numpy, which Pyodide does without when it cannot be fetched.
async function numpy(pyodide) {
  await pyodide.loadPackage("numpy");
  if (!("numpy" in pyodide.loadedPackages)) throw absent("numpy");
}

function absent(name) {
  return new Error(`${name} could not be loaded from ${PYODIDE}: reload when there is a network`);
}

// Returns what a function loads; the page says so while it does.
function loaded(name, start) {
  if (!(name in loads)) {
    postMessage({ state: LOADING });
    loads[name] = start().finally(() => postMessage({ state: "" }));
  }
  return loads[name];
}

async function answer(request) {
  const pyodide = await loaded("python", load);
  if (!WITHOUT_NUMPY.includes(JSON.parse(request).what)) {
    await loaded("numpy", () => numpy(pyodide));
  }
  return pyodide.pyimport("scaling.course.web.ask").ask(request);
}

// The line of a traceback that names the exception; other messages whole.
function summary({ message }) {
  return message.split("\n").findLast((line) => /^[\w.]+(Error|Exception)\b/.test(line)) ?? message;
}

onmessage = async ({ data: { number, request } }) => {
  try {
    postMessage({ number, answer: await answer(request) });
  } catch (error) {
    console.error(error);
    postMessage({ number, failure: summary(error) });
  }
};
