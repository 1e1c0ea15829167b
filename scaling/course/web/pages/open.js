// On a lesson that opens in the browser's own Python: what is missing, and where it can be read.

(() => {
  const CDN = "https://cdn.jsdelivr.net/";
  const element = document.querySelector("marimo-wasm");

  function show(words) {
    const read = location.pathname.split("/").pop().replace(/\.html$/, "_read.html");
    const link = Object.assign(document.createElement("a"), { href: read, textContent: TEXTS["lessons.read_instead"] });
    const line = Object.assign(document.createElement("p"), { id: "missing" });
    line.setAttribute("role", "alert");
    line.style.cssText = "position:fixed;inset:auto 0 0 0;z-index:100;margin:0;padding:0.8rem 1.2rem;"
      + "background:#fdf0e7;color:#7a2a0f;font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere";
    link.style.color = "inherit";
    line.append(`${words} `, link);
    document.body.append(line);
    document.documentElement.style.overflowX = "hidden"; // marimo's own message is wider than a phone
  }

  if (location.protocol === "file:") show(TEXTS["lessons.from_file"]);
  else if (!element?.dataset.pyodideIndexUrl)
    fetch(CDN, { method: "HEAD", mode: "no-cors" }).catch(() =>
      show(TEXTS["lessons.no_network"].replace("{host}", new URL(CDN).host)));
})();
