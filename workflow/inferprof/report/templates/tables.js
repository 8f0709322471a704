"use strict";
// Tables sort by a click on the name of a column and filter by words. Without this script they are whole all the same.
(() => {
  const SORTS = 2, FILTERS = 5; // from so many rows on

  // What a cell is sorted by: a number where its column has numbers, else its words; null where nothing was measured.
  const keyOf = (cell) => {
    if (cell.querySelector("sup")) return null;
    const text = cell.textContent.trim();
    if (!cell.classList.contains("number")) return text.toLowerCase();
    const number = parseFloat(text.replace(/[,<>]/g, ""));
    return Number.isNaN(number) ? null : number;
  };

  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });

  // Ascending, then descending, then as it was; what was not measured is last both ways.
  const sort = (table, head, rows) => {
    const next = { none: "ascending", ascending: "descending", descending: "none" }[head.ariaSort ?? "none"];
    for (const other of head.parentElement.cells) other.ariaSort = other === head ? next : "none";
    table.classList.toggle("sorted", next !== "none");
    if (next === "none") return table.tBodies[0].append(...rows);
    const keyed = rows.map((row) => [keyOf(row.cells[head.cellIndex]), row]);
    const known = keyed.filter(([key]) => key !== null).sort(([a], [b]) => compare(a, b));
    if (next === "descending") known.reverse();
    const unknown = keyed.filter(([key]) => key === null);
    table.tBodies[0].append(...[...known, ...unknown].map(([, row]) => row));
  };

  const filter = (table, rows, typed, said) => {
    const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    table.classList.toggle("filtered", words.length > 0);
    said.textContent = words.length ? `${shown} of ${rows.length}` : "";
  };

  page.enhance = (table) => {
    const rows = [...table.tBodies[0].rows];
    if (rows.length >= SORTS)
      for (const head of table.tHead.rows[0].cells) {
        const button = document.createElement("button");
        button.append(...head.childNodes);
        button.addEventListener("click", () => sort(table, head, rows));
        head.append(button);
      }
    if (rows.length < FILTERS) return;
    const input = document.createElement("input"), said = document.createElement("output");
    Object.assign(input, { type: "search", placeholder: "filter", ariaLabel: "Filter the rows of this table" });
    input.addEventListener("input", () => filter(table, rows, input.value, said));
    table.caption.append(" ", input, " ", said);
  };
  const tables = [...document.querySelectorAll(".table table")];
  tables.forEach(page.enhance);

  // `#case?name=model/precision/…`: of each table that has cases the rows of this one, until its button is pressed.
  const PARTS = ["model", "precision", "backend", "variant", "shape"];
  const banner = page.element("p", { className: "banner", hidden: true, role: "status" });
  const all = page.element("button", { type: "button", textContent: "show all cases" });
  document.querySelector("main")?.prepend(banner);
  const columns = (table) => {
    const titles = [...table.tHead.rows[0].cells].map((head) => head.textContent.trim());
    const places = PARTS.map((part) => titles.indexOf(part));
    return places.includes(-1) ? null : places;
  };
  const only = (name) => {
    const met = [];
    let shown = 0;
    for (const table of tables) {
      const places = columns(table);
      if (!places) continue;
      const is = (row) => !name || places.map((place) => row.cells[place].textContent.trim()).join("/") === name;
      const rows = [...table.tBodies[0].rows];
      for (const row of rows) row.hidden = !is(row);
      table.classList.toggle("filtered", Boolean(name));
      const block = table.closest(".table");
      block.hidden = !rows.some(is);
      if (!block.hidden) met.push(block);
      shown += rows.filter(is).length;
    }
    banner.hidden = !name;
    banner.replaceChildren(`Tables show ${name} alone: ${shown} rows in ${met.length} tables. `, all);
    return met[0];
  };
  all.addEventListener("click", () => {
    only("");
    history.replaceState(null, "", "#");
  });
  page.part("case", ({ name }, named) => {
    if (!named) return;
    const first = only(name ?? "");
    setTimeout(() => (first ?? banner).scrollIntoView());
  });
})();
