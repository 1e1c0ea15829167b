// Where the Python of a browser comes from. The site's export writes the name of its wheel here.

export const PYODIDE = "https://cdn.jsdelivr.net/pyodide/v314.0.7/full/";
export const WHEEL = "scaling.whl";
