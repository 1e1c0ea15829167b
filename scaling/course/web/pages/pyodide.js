// Where the Python of a browser comes from: the version of marimo's pages, which lessons run in. The
// site's export writes here the folder of its own copy, where it has one, and the name of its wheel.

const FROM = "https://cdn.jsdelivr.net/pyodide/v314.0.0/full/";
export const PYODIDE = new URL(FROM, import.meta.url).href;
export const WHEEL = "scaling.whl";
