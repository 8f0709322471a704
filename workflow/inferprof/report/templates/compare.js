"use strict";
// The kernels of any two cases that one tool watched, side by side with their difference: by class, and by kernel.
(() => {
  const { data, element } = page;
  const widget = document.getElementById("compare");
  if (!widget || !(data.kernels?.length > 1)) return;

  const MS = 1e6;
  const AMOUNTS = ["change ms", "ms from", "ms to", "launches from", "launches to"];

  const choice = (label) => {
    const select = element("select", { ariaLabel: label });
    data.kernels.forEach(({ case: name, tool }, place) => select.append(element("option", { value: place, textContent: `${name} (${tool})` })));
    return select;
  };
  const before = choice("From"), after = choice("To"), swap = element("button", { type: "button", textContent: "⇄ swap" });
  const total = element("p", { className: "readout", ariaLive: "polite" });
  const tables = element("div");
  const label = (text, inside) => element("label", {}, text, inside);
  widget.querySelector(".stage").replaceChildren(
    element("div", { className: "bar" }, label("from ", before), label("to ", after), swap), total, tables);

  // Kernel or class → [launches from, launches to, ns from, ns to].
  const sums = (a, b, keyOf) => {
    const by = new Map();
    for (const [side, { rows }] of [[0, a], [1, b]])
      for (const [name, launches, ns] of rows) {
        const key = keyOf(name);
        if (!by.has(key)) by.set(key, [0, 0, 0, 0]);
        by.get(key)[side] += launches;
        by.get(key)[2 + side] += ns;
      }
    return [...by].sort(([, x], [, y]) => Math.abs(y[3] - y[2]) - Math.abs(x[3] - x[2]));
  };

  const ms = (ns) => (ns ? (ns / MS).toPrecision(3) : "0");
  const signed = (ns) => `${ns > 0 ? "+" : ns < 0 ? "−" : ""}${ms(Math.abs(ns))}`;
  const count = (number) => `${+number.toFixed(1)}`;

  const table = (title, heads, rows) => {
    const most = Math.max(...rows.map(([, sum]) => Math.abs(sum[3] - sum[2])), 1e-9);
    const made = element("table", {}, element("caption", { textContent: title }),
      element("thead", {}, element("tr", {}, ...[heads[0], ...AMOUNTS, ...heads.slice(1)].map((head) =>
        element("th", { scope: "col", className: AMOUNTS.includes(head) ? "number" : "text", textContent: head })))),
      element("tbody", {}, ...rows.map(([texts, [la, lb, a, b]]) => {
        const change = element("td", { className: `number ${b > a ? "worse" : "better"}`, textContent: signed(b - a) });
        change.style.setProperty("--share", `${(100 * Math.abs(b - a)) / most}%`);
        const [first, ...rest] = texts.map((text) => element("td", { className: "text", textContent: text }));
        const amounts = [ms(a), ms(b), count(la), count(lb)].map((text) => element("td", { className: "number", textContent: text }));
        return element("tr", {}, first, change, ...amounts, ...rest);
      })));
    const scroll = element("div", { className: "scroll", tabIndex: 0, role: "group", ariaLabel: title }, made);
    page.enhance(made);
    return element("div", { className: "table" }, scroll);
  };

  const show = (keep) => {
    const [a, b] = [data.kernels[before.value], data.kernels[after.value]];
    const [from, to] = [a, b].map(({ rows }) => rows.reduce((sum, [, , ns]) => sum + ns, 0));
    const status = ([, sum]) => (sum[0] === 0 ? "new" : sum[1] === 0 ? "gone" : "both");
    total.textContent = a.tool === b.tool
      ? `Kernel time ${ms(from)} → ${ms(to)} ms: ${signed(to - from)} ms, ${(to / from).toPrecision(3)}×.`
      : `${a.tool} and ${b.tool} spell the names of kernels differently: choose two cases by the same tool.`;
    const same = a.tool === b.tool;
    const kernels = sums(a, b, (name) => name);
    tables.replaceChildren(...(same ? [
      table("By class", ["class"], sums(a, b, (name) => data.classes[name]).map(([type, sum]) => [[type], sum])),
      table("By kernel", ["kernel", "class", "in"], kernels.map((row) => [[data.names[row[0]], data.classes[row[0]], status(row)], row[1]])),
    ] : []));
    if (keep) page.remember("compare", { from: a.case, to: b.case });
  };
  for (const select of [before, after]) select.addEventListener("change", () => show(true));
  swap.addEventListener("click", () => {
    [before.value, after.value] = [after.value, before.value];
    show(true);
  });
  page.part("compare", (shown) => {
    const place = (name, otherwise) => {
      const met = data.kernels.findIndex(({ case: other }) => other === name);
      return met < 0 ? otherwise : met;
    };
    before.value = place(shown.from, 0);
    after.value = place(shown.to, 1);
    show(false);
  });
})();
