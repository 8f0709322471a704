"use strict";
// An iteration as a timeline: zoomed by wheel, drag, pinch, buttons or keys; what is pointed at, or chosen, is named.
(() => {
  const { data, element, time } = page;
  const widget = document.getElementById("iteration");
  if (!widget || !data.timelines?.length) return;

  const ROW = 18, HEAD = 17, AXIS = 22, LEAST = 4, NAME = 34, STEP = 1.6;
  const COLOURS = { range: "#8c959f", call: "#E69F00", sync: "#b9a3d6", kernel: "#0072B2", copy: "#009E73", idle: "#D55E00" };
  const CLASSES = ["#56B4E9", "#0072B2", "#E69F00", "#CC79A7", "#009E73", "#B8A800", "#D55E00", "#882255", "#44AA99", "#7755aa", "#99704d", "#999999"];
  const DARK_TEXT = new Set(["#56B4E9", "#E69F00", "#CC79A7", "#B8A800", "#44AA99", "#999999", "#8c959f", "#b9a3d6"]);
  const HATCHED = new Set(["idle", "copy", "sync"]);

  // --- what is shown ---------------------------------------------------------------------------------------------
  let line, from = 0, to = 1, end = 1, chosen = null, pointed = null, find = [], looks = new Map();

  // The flat lists of a track as events; `edges` are the latest ends so far in each row, for a search by time.
  const unpack = ({ events, ...track }) => {
    const rows = Array.from({ length: track.rows }, () => []);
    let start = 0;
    for (let i = 0; i < events.length; i += 5) {
      start += events[i + 2];
      const [name, node] = [events[i], events[i + 1]];
      rows[events[i + 4]].push({
        name: data.names[name], node: data.nodes[node] ?? "", start, end: start + events[i + 3], kind: track.kind,
        type: data.classes[name], track: `${track.process}, ${track.label}`,
        text: `${data.names[name]} ${data.nodes[node] ?? ""}`.toLowerCase(),
      });
    }
    return { ...track, rows };
  };

  // --- the elements of it ----------------------------------------------------------------------------------------
  const button = (text, label, click) => {
    const made = element("button", { type: "button", textContent: text, title: label, ariaLabel: label });
    made.addEventListener("click", click);
    return made;
  };
  const select = element("select", { ariaLabel: "Capture" });
  data.timelines.forEach(({ case: name, tool, tracks }, place) =>
    select.append(element("option", { value: place, textContent: `${name} (${tool})`, disabled: !tracks })));
  const input = element("input", { type: "search", placeholder: "find kernels, nodes", ariaLabel: "Find in the timeline" });
  const count = element("output");
  const bar = element("div", { className: "bar" }, select,
    button("−", "Zoom out (-)", () => zoom(1 / STEP)), button("+", "Zoom in (+)", () => zoom(STEP)),
    button("whole", "Show the whole iteration (0)", () => show(0, end)),
    button("◀", "Previous event (left arrow)", () => step(-1)), button("▶", "Next event (right arrow)", () => step(1)),
    input, count);
  const canvas = element("canvas");
  const surface = element("div", {
    className: "surface", tabIndex: 0, role: "application",
    ariaLabel: "Timeline. Arrow keys choose an event, plus and minus zoom, shift and arrows move, 0 shows all.",
  }, canvas);
  const readout = element("p", { className: "readout", ariaLive: "polite" });
  const legend = element("p", { className: "legend" });
  const hint = element("p", { className: "note", textContent:
    "Drag to enlarge a part, double click for all of it; Ctrl and wheel zoom, a finger moves. Keys: arrows, + − 0." });
  widget.querySelector(".stage").replaceChildren(bar, surface, readout, legend, hint);

  // --- drawing ---------------------------------------------------------------------------------------------------
  const wide = () => surface.clientWidth;
  const x = (ns) => ((ns - from) / (to - from)) * wide();
  const ns = (pixel) => from + (pixel / wide()) * (to - from);
  const colour = (event) => (event.kind === "kernel" && looks.get(event.type)) || COLOURS[event.kind];
  const css = (name) => getComputedStyle(widget).getPropertyValue(name).trim();
  const matches = (event) => page.has(event.text, find);

  const ticks = () => {
    const rough = (to - from) / Math.max(2, wide() / 110);
    const power = 10 ** Math.floor(Math.log10(rough));
    const gap = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    const made = [];
    for (let at = Math.ceil(from / gap) * gap; at <= to; at += gap) made.push(at);
    return made;
  };

  const hatch = (pen, left, top, width, height) => {
    pen.save();
    pen.beginPath();
    pen.rect(left, top, width, height);
    pen.clip();
    pen.strokeStyle = "rgba(255,255,255,.75)";
    pen.beginPath();
    for (let at = left - (left % 6) - height; at < left + width; at += 6) {
      pen.moveTo(at, top + height);
      pen.lineTo(at + height, top);
    }
    pen.stroke();
    pen.restore();
  };

  // What is narrower than a pixel is put together: as dark as it fills the pixel.
  const thin = (pen, row, top) => {
    const pixels = new Map();
    for (const event of row) {
      if (event.end < from || event.start > to || (find.length && !matches(event))) continue;
      const left = x(event.start), width = x(event.end) - left;
      if (width >= 1) continue;
      const pixel = pixels.get(Math.floor(left)) ?? { filled: 0, most: -1, colour: "" };
      pixel.filled += width;
      if (width > pixel.most) [pixel.most, pixel.colour] = [width, colour(event)];
      pixels.set(Math.floor(left), pixel);
    }
    for (const [left, pixel] of pixels) {
      pen.globalAlpha = find.length ? 1 : Math.max(0.3, Math.min(1, pixel.filled));
      pen.fillStyle = pixel.colour;
      pen.fillRect(left, top + 1, 1, ROW - 3);
    }
    pen.globalAlpha = 1;
  };

  const bars = (pen, row, top) => {
    thin(pen, row, top);
    for (const event of row) {
      if (event.end < from || event.start > to) continue;
      const left = Math.max(0, x(event.start)), right = Math.min(wide(), x(event.end));
      const width = Math.max(1, right - left), marked = event === chosen || event === pointed;
      if (x(event.end) - x(event.start) < 1 && !marked) continue;
      pen.globalAlpha = find.length && !matches(event) ? 0.15 : 1;
      pen.fillStyle = colour(event);
      pen.fillRect(left, top + 1, width > 3 ? width - 0.5 : width, ROW - 3);
      if (HATCHED.has(event.kind) && width > 6) hatch(pen, left, top + 1, width, ROW - 3);
      if (width > NAME && !HATCHED.has(event.kind)) {
        pen.save();
        pen.beginPath();
        pen.rect(left, top, width - 2, ROW);
        pen.clip();
        pen.fillStyle = DARK_TEXT.has(colour(event)) ? "#111" : "#fff";
        pen.fillText(event.name.replace(/^(void|stage:) ?/, ""), left + 3, top + ROW / 2);
        pen.restore();
      }
      if (marked) {
        pen.strokeStyle = css("--ink");
        pen.lineWidth = 2;
        pen.strokeRect(left, top + 1, width, ROW - 3);
        pen.lineWidth = 1;
      }
    }
    pen.globalAlpha = 1;
  };

  const draw = () => {
    const height = AXIS + line.tracks.reduce((sum, track) => sum + HEAD + track.rows.length * ROW, 0);
    const scale = devicePixelRatio || 1;
    canvas.width = wide() * scale;
    canvas.height = height * scale;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    pen.textBaseline = "middle";
    const unit = to - from > 5e6 ? [1e6, "ms"] : to - from > 5e3 ? [1e3, "µs"] : [1, "ns"];
    for (const at of ticks()) {
      pen.fillStyle = css("--line");
      pen.fillRect(x(at), 0, 1, height);
      pen.fillStyle = css("--soft");
      const text = `${+(at / unit[0]).toPrecision(6)} ${unit[1]}`;
      pen.fillText(text, Math.min(x(at) + 3, wide() - pen.measureText(text).width), AXIS / 2);
    }
    pen.fillStyle = css("--link"); // how much of the whole is in sight
    if (to - from < end) pen.fillRect((from / end) * wide(), 0, Math.max(3, ((to - from) / end) * wide()), 3);
    let top = AXIS;
    for (const track of line.tracks) {
      track.top = top;
      pen.fillStyle = css("--soft");
      pen.fillText(`${track.process}, ${track.label}`, 2, top + HEAD / 2);
      top += HEAD;
      for (const row of track.rows) {
        bars(pen, row, top);
        top += ROW;
      }
    }
    if (drag?.mark) {
      pen.fillStyle = css("--link");
      pen.globalAlpha = 0.2;
      pen.fillRect(Math.min(drag.x, drag.mark), 0, Math.abs(drag.mark - drag.x), height);
    }
  };
  let asked = 0;
  const redraw = () => {
    cancelAnimationFrame(asked);
    asked = requestAnimationFrame(draw);
  };

  // --- moving ----------------------------------------------------------------------------------------------------
  const say = (event) => {
    readout.replaceChildren(...(event ? [] : ["Point at an event, or choose one with the arrow keys: it is named here."]));
    if (!event) return;
    const node = event.node ? [element("span", { textContent: ` · ${event.node}` })] : [];
    readout.append(element("strong", { textContent: time(event.end - event.start) }),
      ` from ${time(event.start)} on · ${event.track}${event.kind === "kernel" ? ` · ${event.type}` : ""} · `,
      element("code", { textContent: event.name }), ...node);
  };
  const save = () => page.remember("iteration", {
    case: line.case, tool: line.tool, find: input.value,
    ...(to - from < end ? { from: Math.round(from), to: Math.round(to) } : {}),
  });
  const show = (begin, until, keep = true) => {
    const span = Math.min(end, Math.max(LEAST, until - begin));
    from = Math.max(0, Math.min(begin, end - span));
    to = from + span;
    redraw();
    if (keep) save();
  };
  const zoom = (factor, at = chosen ? (chosen.start + chosen.end) / 2 : (from + to) / 2) => {
    const middle = Math.min(to, Math.max(from, at));
    show(middle - (middle - from) / factor, middle + (to - middle) / factor);
  };
  const choose = (event) => {
    chosen = event;
    say(event);
    if (event && (event.end < from || event.start > to)) show((event.start + event.end - (to - from)) / 2, (event.start + event.end + (to - from)) / 2);
    redraw();
  };
  const rows = () => line.tracks.flatMap((track) => track.rows).filter((row) => row.length);
  const nearest = (row, at) => row.reduce((best, event) => (Math.abs(event.start - at) < Math.abs(best.start - at) ? event : best));
  const step = (by) => {
    const row = rows().find((each) => each.includes(chosen)) ?? rows().find((each) => each[0].kind === "kernel") ?? rows()[0];
    const among = find.length ? row.filter(matches) : row;
    const place = among.indexOf(chosen);
    choose(among[place < 0 ? 0 : Math.min(among.length - 1, Math.max(0, place + by))] ?? chosen);
  };
  const other = (by) => {
    const every = rows();
    const place = every.findIndex((row) => row.includes(chosen));
    choose(nearest(every[Math.min(every.length - 1, Math.max(0, place + by))], chosen?.start ?? from));
  };
  surface.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const pan = (by) => show(from + by * (to - from), to + by * (to - from));
    const keys = {
      ArrowRight: () => (event.shiftKey ? pan(0.25) : step(1)), ArrowLeft: () => (event.shiftKey ? pan(-0.25) : step(-1)),
      ArrowDown: () => other(1), ArrowUp: () => other(-1), "+": () => zoom(STEP), "=": () => zoom(STEP), "-": () => zoom(1 / STEP),
      0: () => show(0, end), Home: () => show(0, to - from), End: () => show(end - (to - from), end),
      Enter: () => chosen && show(chosen.start - (chosen.end - chosen.start) * 0.2, chosen.end + (chosen.end - chosen.start) * 0.2),
      Escape: () => choose(null),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });

  // What lies at a place of the canvas; thin events are met from 3 pixels away.
  const hit = (left, top) => {
    const track = line.tracks.find((each) => top >= each.top && top < each.top + HEAD + each.rows.length * ROW);
    const row = track?.rows[Math.floor((top - track.top - HEAD) / ROW)] ?? [];
    const [low, high] = [ns(left - 3), ns(left + 3)], at = ns(left);
    const near = row.filter((event) => event.end >= low && event.start <= high);
    return near.find((event) => event.start <= at && event.end >= at) ?? near[0] ?? null;
  };
  let drag = null;
  const fingers = new Map();
  surface.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    fingers.set(event.pointerId, event.offsetX);
    drag = { x: event.offsetX, y: event.offsetY, from, to, mouse: event.pointerType === "mouse" };
    if (drag.mouse) surface.setPointerCapture(event.pointerId);
  });
  surface.addEventListener("pointermove", (event) => {
    if (!drag) {
      pointed = hit(event.offsetX, event.offsetY);
      surface.style.cursor = pointed ? "pointer" : "crosshair";
      say(pointed ?? chosen);
      redraw();
    } else if (drag.mouse) {
      drag.mark = event.offsetX;
      redraw();
    } else if (fingers.has(event.pointerId)) {
      const before = [...fingers.values()];
      fingers.set(event.pointerId, event.offsetX);
      const after = [...fingers.values()];
      if (after.length === 2) {
        const apart = ([a, b]) => Math.max(12, Math.abs(a - b));
        zoom(apart(after) / apart(before), ns((after[0] + after[1]) / 2));
      } else show(from - ns(after[0]) + ns(before[0]), to - ns(after[0]) + ns(before[0]));
    }
  });
  const leave = (event) => {
    if (drag && event.type === "pointerup") {
      if (drag.mouse && Math.abs(event.offsetX - drag.x) > 5) {
        const [a, b] = [ns(Math.min(drag.x, event.offsetX)), ns(Math.max(drag.x, event.offsetX))];
        show(a, b);
      } else if (Math.abs(event.offsetX - drag.x) < 6) choose(hit(event.offsetX, event.offsetY));
    }
    fingers.delete(event.pointerId);
    drag = null;
    redraw();
  };
  surface.addEventListener("pointerup", leave);
  surface.addEventListener("pointercancel", leave);
  surface.addEventListener("pointerleave", () => {
    pointed = null;
    say(chosen);
    redraw();
  });
  surface.addEventListener("dblclick", () => show(0, end));
  surface.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
    event.preventDefault();
    if (event.shiftKey) show(from + ((event.deltaY + event.deltaX) / wide()) * (to - from), to + ((event.deltaY + event.deltaX) / wide()) * (to - from));
    else zoom(event.deltaY < 0 ? 1.25 : 0.8, ns(event.offsetX));
  }, { passive: false });

  // --- what to show ----------------------------------------------------------------------------------------------
  const look = () => {
    find = page.words(input.value);
    const met = find.length ? line.tracks.flatMap((track) => track.rows.flat()).filter(matches) : [];
    const took = met.reduce((sum, event) => sum + event.end - event.start, 0);
    count.textContent = find.length ? `${met.length} events, ${time(took)}` : "";
    if (met.length && !met.includes(chosen)) choose(met[0]);
    redraw();
  };
  const open = (place) => {
    const named = data.timelines[place];
    line = { ...named, tracks: named.tracks.map(unpack) };
    select.value = place;
    end = Math.max(...line.tracks.flatMap((track) => track.rows.flat().map((event) => event.end)));
    [chosen, pointed] = [null, null];
    const spent = new Map();
    for (const event of line.tracks.filter((track) => track.kind === "kernel").flatMap((track) => track.rows.flat()))
      spent.set(event.type, (spent.get(event.type) ?? 0) + event.end - event.start);
    const ordered = [...spent].sort(([, a], [, b]) => b - a);
    looks = new Map(ordered.map(([type], index) => [type, CLASSES[Math.min(index, CLASSES.length - 1)]]));
    legend.replaceChildren(...ordered.map(([type, took]) => element("span", {}, element("i", { style: `background:${looks.get(type)}` }), `${type} ${time(took)}`)),
      ...(line.slow_down ? [element("span", { textContent: `${line.slow_down.toFixed(2)}× as long as bare` })] : []));
    say(null);
  };
  select.addEventListener("change", () => {
    open(+select.value);
    show(0, end);
    look();
  });
  input.addEventListener("input", () => {
    look();
    save();
  });
  input.addEventListener("keydown", (event) => event.key === "Enter" && step(event.shiftKey ? -1 : 1));
  page.part("iteration", (shown, named) => {
    const fits = ({ case: name, tool, tracks }) => tracks && name === shown.case && (!shown.tool || tool === shown.tool);
    const place = data.timelines.findIndex(fits);
    open(place < 0 ? Math.max(data.first, data.timelines.findIndex(({ tracks }) => tracks)) : place);
    input.value = shown.find ?? "";
    show(+(shown.from ?? 0), +(shown.to ?? end), false);
    look();
  });
  new ResizeObserver(redraw).observe(surface);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
})();
