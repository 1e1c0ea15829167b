// A Python in the browser: Pyodide, and this project's own wheel from the site.

import { PYODIDE, WHEEL } from "./pyodide.js";

const MEGABYTES = { python: 13, numpy: 3 }; // of Pyodide 314: what npm has, and its numpy
const loads = {}; // name -> a promise: each is loaded once

// Returns Pyodide with this project in it.
async function load() {
  const pyodide = await started();
  pyodide.unpackArchive(await (await fetch(WHEEL)).arrayBuffer(), "wheel");
  return pyodide;
}

async function started() {
  try {
    const { loadPyodide } = await import(new URL("pyodide.mjs", PYODIDE));
    return await loadPyodide({ indexURL: PYODIDE });
  } catch (error) {
    console.error(error);
    throw absent("Python", PYODIDE);
  }
}

// numpy, which Pyodide does without when it cannot be fetched.
async function numpy(pyodide) {
  await pyodide.loadPackage("numpy");
  if (!("numpy" in pyodide.loadedPackages)) throw absent("numpy", pyodide.lockfile.packages.numpy.file_name);
}

function absent(name, place) {
  return Object.assign(new Error(name), { absent: { name, place } });
}

// Returns what a function loads; the page says so while it does.
function loaded(name, start) {
  if (!(name in loads)) {
    postMessage({ loading: MEGABYTES[name] });
    loads[name] = start().finally(() => postMessage({ loading: 0 }));
  }
  return loads[name];
}

async function answer(request) {
  const pyodide = await loaded("python", load);
  await loaded("numpy", () => numpy(pyodide));
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
    if (error.absent) postMessage({ number, absent: error.absent });
    else postMessage({ number, failure: summary(error) });
  }
};
