"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  document.documentElement.classList.remove("no-script");
  const view = document.querySelector(".view");
  const svg = document.querySelector("svg.network");
  const boxes = new Map(all("svg .box").map((box) => [box.dataset.key, box]));
  const edges = all("svg .edge");
  const tables = all("details.table");
  const rows = new Map(all("tr[data-column]").map((row) => [row.id, row]));
  const hint = document.getElementById("hint");
  const said = hint ? hint.textContent : "";
  const tableOf = (column) => column.split("-")[0];

  const neighbours = (pairs) => {
    const found = new Map();
    for (const [one, other] of pairs) {
      if (!found.has(one)) found.set(one, []);
      found.get(one).push(other);
    }
    return found;
  };
  const turned = (pairs) => pairs.map(([one, other]) => [other, one]);
  const reached = (start, steps) => {
    const seen = new Set([start]);
    const waiting = [start];
    while (waiting.length) {
      for (const next of steps.get(waiting.pop()) || []) {
        if (!seen.has(next)) { seen.add(next); waiting.push(next); }
      }
    }
    return seen;
  };
  const tablePairs = edges.map((edge) => [edge.dataset.from, edge.dataset.to]);
  const columnPairs = [...rows.values()].flatMap((row) =>
    (row.dataset.from || "").split(" ").filter(Boolean).map((source) => [source, row.id]));
  const flows = [neighbours(tablePairs), neighbours(turned(tablePairs))];
  const columnFlows = [neighbours(columnPairs), neighbours(turned(columnPairs))];

  const clear = () => {
    if (svg) svg.classList.remove("traced");
    all(".lit, .chosen, .aside").forEach((element) => element.classList.remove("lit", "chosen", "aside"));
    if (hint) hint.textContent = said;
  };
  const light = (keys) => {
    svg.classList.add("traced");
    boxes.forEach((box, key) => box.classList.toggle("lit", keys.has(key)));
    edges.forEach((edge) => edge.classList.toggle("lit", keys.has(edge.dataset.from) && keys.has(edge.dataset.to)));
  };
  const reveal = (key) => {
    const box = boxes.get(key).getBoundingClientRect(), seen = view.getBoundingClientRect();
    if (box.left < seen.left || box.right > seen.right) view.scrollLeft += box.left + box.width / 2 - seen.left - seen.width / 2;
    if (box.top < seen.top || box.bottom > seen.bottom) view.scrollTop += box.top + box.height / 2 - seen.top - seen.height / 2;
  };
  const traceBox = (key) => {
    clear();
    light(new Set([...reached(key, flows[0]), ...reached(key, flows[1])]));
    boxes.get(key).classList.add("chosen");
    reveal(key);
    const table = document.getElementById(key);
    if (table && table.tagName === "DETAILS") { table.open = true; table.classList.add("chosen"); }
    if (hint) hint.textContent = "What leads to it and what comes of it is lit. Esc ends this.";
    return table;
  };
  const traceColumn = (row) => {
    clear();
    const columns = new Set([...reached(row.id, columnFlows[0]), ...reached(row.id, columnFlows[1])]);
    columns.forEach((column) => { if (rows.has(column)) rows.get(column).classList.add("lit"); });
    const keys = new Set([...columns].map(tableOf));
    tables.forEach((table) => {
      if (keys.has(table.id)) table.open = true;
      else table.classList.add("aside");
    });
    // The jobs between two lit tables.
    tablePairs.forEach(([from, to]) => {
      if (keys.has(from) && to.startsWith("j") && (flows[0].get(to) || []).some((next) => keys.has(next))) keys.add(to);
    });
    light(keys);
    reveal(tableOf(row.id));
    row.classList.add("chosen");
    if (hint) hint.textContent = `${columns.size - 1} other columns lead to this one or come of it. Esc ends this.`;
  };

  boxes.forEach((box, key) => box.addEventListener("click", (event) => {
    event.preventDefault();
    const table = traceBox(key);
    if (table) table.scrollIntoView({ block: "nearest" });
  }));
  tables.forEach((table) => table.querySelector("summary").addEventListener("click", () => {
    if (boxes.has(table.id) && !table.open) traceBox(table.id);
  }));
  rows.forEach((row) => {
    const cell = row.querySelector("td.column");
    const button = document.createElement("button");
    button.type = "button";
    button.title = "Trace this column";
    button.append(...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", () => traceColumn(row));
  });
  all("a[href^='#d']:not(.box)").forEach((link) => link.addEventListener("click", () => {
    const target = document.getElementById(link.hash.slice(1));
    const table = target && target.closest("details");
    if (table) table.open = true;
  }));
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") clear(); });

  const filter = document.getElementById("filter");
  if (filter) filter.addEventListener("input", () => {
    const wanted = filter.value.trim().toLowerCase();
    tables.forEach((table) => {
      const found = !wanted || table.textContent.toLowerCase().includes(wanted);
      table.hidden = !found;
      const box = boxes.get(table.id);
      if (box) box.classList.toggle("missed", !found);
    });
  });
  const every = document.getElementById("every");
  if (every) every.addEventListener("click", () => {
    const open = !tables.every((table) => table.open || table.hidden);
    tables.forEach((table) => { table.open = open; });
  });

  if (!view || !svg) return;
  const [width, height] = svg.getAttribute("viewBox").split(" ").slice(2).map(Number);
  let scale = 1;
  const zoom = (to, x = view.clientWidth / 2, y = view.clientHeight / 2) => {
    const next = Math.min(Math.max(to, 0.05), 4);
    const left = (view.scrollLeft + x) / scale, top = (view.scrollTop + y) / scale;
    scale = next;
    svg.setAttribute("width", width * scale);
    svg.setAttribute("height", height * scale);
    view.scrollLeft = left * scale - x;
    view.scrollTop = top * scale - y;
  };
  const fit = (least) => zoom(Math.max(least, Math.min(1, (view.clientWidth - 2) / width,
    Math.max(view.clientHeight, window.innerHeight * 0.6) / height)));
  const act = { "zoom-in": () => zoom(scale * 1.25), "zoom-out": () => zoom(scale / 1.25), "zoom-all": () => fit(0),
    "zoom-one": () => zoom(1) };
  Object.entries(act).forEach(([id, action]) => document.getElementById(id).addEventListener("click", action));
  view.addEventListener("keydown", (event) => {
    const action = { "+": "zoom-in", "-": "zoom-out", "0": "zoom-all" }[event.key];
    if (action && !event.ctrlKey && !event.metaKey) { event.preventDefault(); act[action](); }
  });
  view.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const edge = view.getBoundingClientRect();
    zoom(scale * Math.exp(-event.deltaY / 400), event.clientX - edge.left, event.clientY - edge.top);
  }, { passive: false });
  let grabbed = null, moved = false;
  view.addEventListener("pointerdown", (event) => {
    moved = false;
    if (event.button === 0 && event.pointerType === "mouse") grabbed = { x: event.clientX, y: event.clientY };
  });
  window.addEventListener("pointermove", (event) => {
    if (!grabbed) return;
    const x = event.clientX - grabbed.x, y = event.clientY - grabbed.y;
    if (!moved && Math.abs(x) + Math.abs(y) < 5) return;
    moved = true;
    view.classList.add("grabbed");
    view.scrollLeft -= x;
    view.scrollTop -= y;
    grabbed = { x: event.clientX, y: event.clientY };
  });
  window.addEventListener("pointerup", () => { grabbed = null; view.classList.remove("grabbed"); });
  view.addEventListener("click", (event) => {
    if (moved) { event.preventDefault(); event.stopPropagation(); moved = false; }
  }, true);
  view.addEventListener("dragstart", (event) => event.preventDefault());
  fit(0.6);
})();
