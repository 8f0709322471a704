"use strict";
// One field for sections, tables, plots, cases and kernels. Each hit is a link: also one that can be passed on.
(() => {
  const { data, element, link } = page;
  const box = document.querySelector(".search");
  if (!box) return;
  const MOST = 30;

  const input = element("input", { type: "search", placeholder: "search (press /)", ariaLabel: "Search sections, cases and kernels" });
  const hits = element("ul", { hidden: true });
  const said = element("output");
  box.append(input, said, hits);

  const entries = [];
  const add = (kind, text, href) => entries.push({ kind, text, href, lower: `${kind} ${text}`.toLowerCase() });
  for (const head of document.querySelectorAll("main h2")) add("section", head.firstChild.textContent.trim(), `#${head.parentElement.id}`);
  for (const part of document.querySelectorAll("figure[id]")) add("plot", part.querySelector("strong").textContent, `#${part.id}`);
  for (const part of document.querySelectorAll(".table[id]")) {
    const title = part.querySelector("caption .title").textContent;
    if (title) add("table", title, `#${part.id}`);
  }
  for (const [name, outcome] of data.cases ?? []) add("case", outcome === "ok" ? name : `${name} (${outcome})`, link("case", { name }));
  (data.timelines ?? []).forEach(({ case: name, tool, tracks }) => tracks && add("timeline", `${name} (${tool})`, link("iteration", { case: name, tool })));
  const met = new Map();
  for (const { case: name, tool, tracks } of data.timelines ?? [])
    for (const { kind, events } of tracks ?? [])
      if (kind === "kernel") for (let i = 0; i < events.length; i += 5) if (!met.has(events[i])) met.set(events[i], { case: name, tool });
  for (const [number, where] of met) add("kernel", data.names[number], link("iteration", { ...where, find: data.names[number] }));

  const search = () => {
    const words = page.words(input.value);
    const matching = words.length ? entries.filter(({ lower }) => page.has(lower, words)) : [];
    hits.replaceChildren(...matching.slice(0, MOST).map(({ kind, text, href }) =>
      element("li", {}, element("a", { href }, element("span", { className: "kind", textContent: kind }), ` ${text}`))));
    hits.hidden = !matching.length;
    said.textContent = words.length ? `${matching.length} hit${matching.length === 1 ? "" : "s"}` : "";
  };
  input.addEventListener("input", search);
  const close = () => {
    input.value = "";
    search();
  };
  hits.addEventListener("click", (event) => event.target.closest("a") && setTimeout(close));
  box.addEventListener("keydown", (event) => {
    const links = [...hits.querySelectorAll("a")], place = links.indexOf(document.activeElement);
    if (event.key === "Escape") {
      close();
      input.focus();
    } else if (event.key === "ArrowDown" && links.length) {
      event.preventDefault();
      links[Math.min(links.length - 1, place + 1)].focus();
    } else if (event.key === "ArrowUp" && place >= 0) {
      event.preventDefault();
      (links[place - 1] ?? input).focus();
    } else if (event.key === "Enter" && document.activeElement === input) links[0]?.click();
  });
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    if (event.key === "/") {
      event.preventDefault();
      input.focus();
    }
    if (event.key !== "j" && event.key !== "k") return; // the next section, or the one before
    const sections = [...document.querySelectorAll("main section")], gap = 8;
    const below = sections.filter((each) => each.getBoundingClientRect().top > gap);
    const above = sections.filter((each) => each.getBoundingClientRect().top < -gap);
    (event.key === "j" ? below[0] : above.at(-1))?.scrollIntoView();
  });
})();
