"use strict";
// What the other scripts share: the data of the page, its address, and elements.
const page = (() => {
  const own = document.getElementById("data");
  const data = own ? JSON.parse(own.textContent) : {};

  const element = (tag, properties = {}, ...inside) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(properties))
      if (name in made) made[name] = value;
      else made.setAttribute(name, value);
    made.append(...inside);
    return made;
  };

  // `#iteration?case=a/b&find=gemm`: the part of the page, and what it shows.
  const address = () => {
    const [id, query = ""] = location.hash.slice(1).split("?");
    return { id: decodeURIComponent(id), shown: Object.fromEntries(new URLSearchParams(query)) };
  };
  const link = (id, shown) => {
    const query = new URLSearchParams(Object.entries(shown).filter(([, value]) => value !== "" && value != null));
    return `#${id}${[...query].length ? `?${query}` : ""}`;
  };
  let waiting = 0;
  const remember = (id, shown) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => history.replaceState(null, "", link(id, shown)), 250); // browsers count such calls
  };

  // show(what) is called at the start and whenever the address names this part.
  const part = (id, show) => {
    const follow = () => {
      const { id: named, shown } = address();
      if (named === id) show(shown, true);
      return named === id;
    };
    if (!follow()) show({}, false);
    addEventListener("hashchange", follow);
  };

  // An address with a ? is no id: the page goes there itself.
  const go = () => {
    const { id } = address();
    if (location.hash.includes("?")) document.getElementById(id)?.scrollIntoView();
  };
  addEventListener("hashchange", go);
  addEventListener("load", go);

  const words = (typed) => typed.toLowerCase().split(/\s+/).filter(Boolean);
  const has = (text, every) => every.every((word) => text.includes(word));
  const time = (ns) => (ns >= 1e6 ? `${(ns / 1e6).toPrecision(4)} ms` : ns >= 1e3 ? `${(ns / 1e3).toPrecision(4)} µs` : `${ns} ns`);
  return { data, element, address, link, remember, part, words, has, time };
})();
