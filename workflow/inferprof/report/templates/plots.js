"use strict";
// Plots are enlarged by dragging over a part of them; a button shows all of one again. Their texts grow with them.
(() => {
  const LEAST = 8; // pixels: less is a click
  const SVG = "http://www.w3.org/2000/svg";

  // Where a pointer is, in the plot's own units.
  const at = (svg, event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());

  for (const svg of document.querySelectorAll(".plot svg")) {
    const whole = svg.getAttribute("viewBox");
    const hint = document.createElement("span"), back = document.createElement("button");
    Object.assign(hint, { className: "hint", textContent: "drag over a part to enlarge it" });
    Object.assign(back, { type: "button", textContent: "show all of it", hidden: true });
    svg.closest("figure").querySelector("figcaption a").after(" ", hint, back);

    const show = (viewBox, height) => {
      svg.setAttribute("viewBox", viewBox);
      svg.style.height = height;
      hint.hidden = viewBox !== whole;
      back.hidden = !hint.hidden;
    };
    back.addEventListener("click", () => show(whole, ""));

    let begun = null, mark = null;
    const marked = (event) => {
      const from = at(svg, begun), to = at(svg, event);
      const x = Math.min(from.x, to.x), y = Math.min(from.y, to.y);
      return { x, y, width: Math.abs(to.x - from.x), height: Math.abs(to.y - from.y) };
    };
    const leave = () => {
      mark?.remove();
      begun = mark = null;
    };
    svg.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse" || event.button) return;
      begun = event;
      mark = svg.appendChild(document.createElementNS(SVG, "rect"));
      mark.classList.add("mark");
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => {
      if (begun) for (const [name, value] of Object.entries(marked(event))) mark.setAttribute(name, value);
    });
    svg.addEventListener("pointerup", (event) => {
      if (!begun) return;
      const far = [event.clientX - begun.clientX, event.clientY - begun.clientY].every((by) => Math.abs(by) >= LEAST);
      if (far) show(Object.values(marked(event)).join(" "), `${svg.clientHeight}px`);
      leave();
    });
    svg.addEventListener("pointercancel", leave);
  }
})();
