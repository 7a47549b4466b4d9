"use strict";
(() => {
  const root = document.documentElement;
  const find = (selector, from = document) => from.querySelector(selector);
  const findAll = (selector, from = document) => [...from.querySelectorAll(selector)];
  window.addEventListener("error", (event) => { root.dataset.error = event.message; });
  const { head, rows, flags } = JSON.parse(find("#rows").textContent);
  const tip = find("#tip");

  const element = (name, text = "", className = "") => {
    const made = document.createElement(name);
    made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const flagsOf = (row) => flags.filter((_, bit) => row.f >> bit & 1);

  // The table: cells are texts; numbers are read from them, and what is no number comes last.
  const PAGE = 100;
  const state = { column: null, down: false, shown: PAGE };
  const number = (text) => {
    const plain = text.replaceAll("−", "-").replaceAll("\u202f", "").replace("∞", "Infinity");
    return parseFloat(plain);
  };
  const order = (column) => (a, b) => {
    const [x, y] = [a.c[column], b.c[column]];
    if (head[column].kind === "text") {
      if (/^-?\d+$/.test(x) && /^-?\d+$/.test(y)) {
        const [p, q] = [BigInt(x), BigInt(y)];
        return p < q ? -1 : p > q ? 1 : 0;
      }
      return x.localeCompare(y, "en", { numeric: true });
    }
    const [p, q] = [number(x), number(y)];
    if (Number.isNaN(p) || Number.isNaN(q)) return Number.isNaN(p) - Number.isNaN(q) || 0;
    return p < q ? -1 : p > q ? 1 : 0;
  };
  const isNothing = (row, column) => head[column].kind === "number" && Number.isNaN(number(row.c[column]));
  const selected = () => {
    const words = find("#search").value.toLowerCase();
    const [grade, flag] = [find("#grade").value, find("#flag").value];
    const textual = head.map((column, k) => column.kind === "text" ? k : -1).filter((k) => k >= 0);
    let kept = rows.filter((row) =>
      (!words || textual.some((k) => row.c[k].toLowerCase().includes(words)))
      && (!grade || (grade === "good") === (row.g === "good"))
      && (!flag || (flag === "none" ? row.f === 0 : row.f >> flag & 1)));
    if (state.column !== null) {
      const [with_, without] = [[], []];
      for (const row of kept) (isNothing(row, state.column) ? without : with_).push(row);
      with_.sort(order(state.column));
      if (state.down) with_.reverse();
      kept = with_.concat(without);
    }
    return kept;
  };
  const line = (row) => {
    const made = element("tr");
    row.c.forEach((text, k) => {
      const cell = element("td", "", k === 1 ? row.g : head[k].kind === "number" ? "number" : "");
      if (k === 0 && row.a) {
        const link = element("a", text);
        link.href = `#${row.a}`;
        cell.append(link);
      } else {
        cell.textContent = text;
      }
      if (k === 0) cell.title = text;
      made.append(cell);
    });
    const chips = element("td");
    chips.append(...flagsOf(row).map((name) => element("span", name, "chip")));
    made.append(chips);
    return made;
  };
  const show = () => {
    const kept = selected();
    find("#table tbody").replaceChildren(...kept.slice(0, state.shown).map(line));
    find("#shown").textContent = `${Math.min(state.shown, kept.length)} of ${kept.length} rows`;
    find("#more").hidden = kept.length <= state.shown;
    findAll("#table th").forEach((th, k) => {
      th.ariaSort = k !== state.column ? "none" : state.down ? "descending" : "ascending";
    });
    return kept;
  };
  const sortBy = (column) => {
    state.down = state.column === column && !state.down;
    state.column = column;
    return show();
  };
  const heads = element("tr");
  head.forEach((column, k) => {
    const [th, button] = [element("th", "", column.kind === "number" ? "number" : ""), element("button")];
    button.innerHTML = column.html;
    button.type = "button";
    button.addEventListener("click", () => sortBy(k));
    th.append(button);
    heads.append(th);
  });
  heads.append(element("th", "flags"));
  find("#table thead").append(heads);
  flags.forEach((name, bit) => {
    if (!rows.some((row) => row.f >> bit & 1)) return;
    const option = element("option", name);
    option.value = bit;
    find("#flag").append(option);
  });
  const refilter = () => { state.shown = PAGE; show(); };
  for (const id of ["#search", "#grade", "#flag"]) find(id).addEventListener("input", refilter);
  find(".tools").addEventListener("submit", (event) => event.preventDefault());
  find("#more").addEventListener("click", () => { state.shown += 10 * PAGE; show(); });
  show();

  // Hovering: bars say their counts, points their rows.
  const say = (text, event) => {
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, innerWidth - width - 4))}px`;
    tip.style.top = `${event.clientY - height - 12 < 4 ? event.clientY + 18 : event.clientY - height - 12}px`;
  };
  const told = (row) => [`id ${row.c[0]}`, ...row.c.slice(1).map((text, k) => `${head[k + 1].name}: ${text}`),
    ...flagsOf(row)].join("\n");
  const nearest = (svg, circles, event) => {
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    let [best, least] = [null, 18 ** 2];
    for (const circle of circles) {
      const distance = (circle.cx.baseVal.value - x) ** 2 + (circle.cy.baseVal.value - y) ** 2;
      if (distance < least) [best, least] = [circle, distance];
    }
    return best;
  };
  const reveal = (row) => {
    find("#search").value = row.c[0];
    find("#grade").value = find("#flag").value = "";
    refilter();
    find("#search").scrollIntoView({ block: "center" });
  };
  for (const svg of findAll("figure svg")) {
    const circles = findAll("circle", svg);
    let on = null;
    const mark = (circle) => {
      on?.classList.remove("on");
      on = circle;
      on?.classList.add("on");
    };
    svg.addEventListener("pointermove", (event) => {
      if (circles.length) mark(nearest(svg, circles, event));
      say(on ? told(rows[on.dataset.row]) : event.target.dataset.tip, event);
    });
    svg.addEventListener("pointerleave", () => { mark(null); say(""); });
    svg.addEventListener("click", () => { if (on) { say(""); reveal(rows[on.dataset.row]); } });
  }

  // Hovering over a spectrum: the path's own steps, read back, give the values.
  const points = (path) => {
    const all = [];
    let [x, y] = [0, 0];
    for (const [, command, rest] of path.getAttribute("d").matchAll(/([Mlhv])([^Mlhv]*)/g)) {
      const [a, b] = rest.split(" ").map(Number);
      if (command === "M") [x, y] = [a, b];
      else if (command === "h") x += a;
      else if (command === "v") y += a;
      else [x, y] = [x + a, y + b];
      all.push([x, y]);
    }
    return all;
  };
  const digits = (x) => Math.abs(x) >= 1e5 || (x && Math.abs(x) < 1e-3) ? x.toExponential(2) : x.toPrecision(4);
  const readout = (arm) => {
    const [[from, to], [low, high]] = [arm.dataset.x, arm.dataset.y].map((text) => text.split(",").map(Number));
    const [upper, lower] = [find("svg.flux", arm), find("svg.residual", arm)];
    const { width, height } = upper.viewBox.baseVal;
    const curves = [["data", "data"], ["model", "model"], ["multiplier", "continuum"]]
      .map(([name, curve]) => [name, find(`.${curve}`, upper), low, high]);
    const most = lower ? +lower.dataset.most : 0;
    if (lower) curves.push(["residual", find(".data", lower), -most, most], ["mean", find(".mean", lower), -most, most]);
    curves.forEach((curve) => { curve[1] = points(curve[1]); });
    const cursors = findAll("svg", arm).map((svg) => {
      const cursor = document.createElementNS(svg.namespaceURI, "path");
      cursor.setAttribute("class", "cursor");
      svg.append(cursor);
      return cursor;
    });
    const place = find(".read span", arm);
    const legend = [...place.childNodes];
    const move = (event) => {
      const box = upper.getBoundingClientRect();
      const x = Math.max(0, Math.min(width, (event.clientX - box.left) / box.width * width));
      cursors.forEach((cursor) => cursor.setAttribute("d", `M${x} 0V${height}`));
      const texts = [`${(from + x / width * (to - from)).toFixed(1)} Å`];
      for (const [name, all, bottom, top] of curves) {
        const near = all.reduce((best, p) => Math.abs(p[0] - x) < Math.abs(best[0] - x) ? p : best, [1e9, 0]);
        if (Math.abs(near[0] - x) > 2) continue;
        const value = top - near[1] / height * (top - bottom);
        const isResidual = name === "residual" || name === "mean";
        texts.push(isResidual ? `${name} ${value.toFixed(name === "mean" ? 2 : 1)} σ` : `${name} ${digits(value)}`);
      }
      place.textContent = texts.join(" · ").replaceAll("-", "−");
    };
    return { move, leave: () => { cursors.forEach((c) => c.removeAttribute("d")); place.replaceChildren(...legend); } };
  };
  for (const arm of findAll(".arm")) {
    let ready = null;
    for (const svg of findAll("svg", arm)) {
      svg.addEventListener("pointermove", (event) => { ready ??= readout(arm); ready.move(event); });
      svg.addEventListener("pointerleave", () => ready?.leave());
    }
  }

  // A link to a spectrum in a folded gallery unfolds it.
  const unfold = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    const folded = target && target.closest("details:not([open])");
    if (!folded) return;
    folded.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();

  // What a test reads in an attribute of the page: that all this ran, that nothing is wider than the window, and what
  // sorting does. A test holds the page in frames of several widths. Nothing is posted: a page of another origin that
  // frames this one learns nothing of its rows.
  const selftest = () => {
    const ids = (kept) => kept.slice(0, 50).map((row) => row.c[0]);
    const middle = (of) => {
      const box = of.getBoundingClientRect();
      const at = { clientX: box.left + box.width / 2, clientY: box.top + box.height / 2, bubbles: true };
      of.dispatchEvent(new PointerEvent("pointermove", at));
    };
    const said = (selector, where) => {
      const target = find(selector);
      if (target) middle(target);
      return target && find(where).textContent;
    };
    for (const gallery of findAll("details")) gallery.open = true;
    const seen = { rows: rows.length, width: innerWidth, overflow: Math.max(0, root.scrollWidth - innerWidth) };
    seen.bar = said("rect.bar", "#tip");
    seen.point = said("circle", "#tip");
    seen.readout = said(".arm svg.flux", ".read span");
    const boxes = (arm) => findAll(".names i", arm).map((name) => name.getBoundingClientRect()).filter((box) => box.width);
    const collide = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    const collisions = (all) => all.filter((a, k) => all.slice(k + 1).some((b) => collide(a, b))).length;
    const arms = findAll(".arm").map(boxes);
    seen.names = arms.flat().length;
    seen.collisions = arms.map(collisions).reduce((a, b) => a + b, 0);
    seen.articles = findAll("article").length;
    seen.galleries = findAll("details.folded").length;
    const paths = findAll(".arm path:not(.cursor)");
    seen.invisible = paths.filter((path) => path.getAttribute("d") && getComputedStyle(path).stroke === "none"
      && getComputedStyle(path).fill === "none").length;
    seen.ascending = ids(sortBy(0));
    seen.descending = ids(sortBy(0));
    seen.numbers = sortBy(2).map((row) => row.c[2]);
    find("#grade").value = "other";
    seen.failed = show().length;
    seen.error = root.dataset.error ?? null;
    root.dataset.seen = JSON.stringify(seen);
  };
  if (location.hash === "#selftest") selftest();
  root.dataset.rows = rows.length;
})();
