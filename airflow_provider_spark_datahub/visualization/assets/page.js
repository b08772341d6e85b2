"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const byId = (id) => document.getElementById(id);
  document.documentElement.classList.remove("no-script");
  const svg = document.querySelector("svg.network");
  if (!svg) return;
  const view = document.querySelector(".view");
  const boxes = new Map(all(".box", svg).map((box) => [box.dataset.key, box]));
  const lines = new Map(all(".edge", svg).map((edge) => [`${edge.dataset.from} ${edge.dataset.to}`, edge]));
  const tables = all("details.table");
  const rows = new Map(all("tr[data-column]").map((row) => [row.id, row]));
  const tableOf = (column) => column.split("-")[0];
  const nameOf = (element) => element.querySelector("bdi, title").textContent;
  const counted = (count, name) => `${count} ${name}${count === 1 ? "" : "s"}`;

  // Steps: from a box or column to the next, over the lines that are drawn for it.
  class Steps {
    constructor() { this.back = new Map(); this.on = new Map(); }
    add(from, to, over) {
      for (const [steps, start, end] of [[this.on, from, to], [this.back, to, from]]) {
        if (!steps.has(start)) steps.set(start, []);
        steps.get(start).push([end, over]);
      }
    }
    static walk(start, steps) {
      const seen = new Set([start]), over = new Set(), waiting = [start];
      while (waiting.length) for (const [next, passed] of steps.get(waiting.pop()) || []) {
        passed.forEach((line) => over.add(line));
        if (!seen.has(next)) { seen.add(next); waiting.push(next); }
      }
      return { seen, over };
    }
    // What leads to the start and what comes of it: not what else comes of what leads to it.
    trace(start) {
      const before = Steps.walk(start, this.back), after = Steps.walk(start, this.on);
      return { before: before.seen, after: after.seen, seen: new Set([...before.seen, ...after.seen]),
        over: new Set([...before.over, ...after.over]) };
    }
  }
  const boxSteps = new Steps();
  for (const line of lines.keys()) boxSteps.add(...line.split(" "), [line]);
  const valueSteps = new Steps(), columnSteps = new Steps();
  for (const row of rows.values()) {
    for (const [said, kinds] of [["values", [valueSteps, columnSteps]], ["deciding", [columnSteps]]]) {
      for (const step of (row.dataset[said] || "").split(" ").filter(Boolean)) {
        const [column, job] = step.split("@");
        const over = [`${tableOf(column)} ${job}`, `${job} ${tableOf(row.id)}`];
        kinds.forEach((steps) => steps.add(column, row.id, over));
      }
    }
  }

  // An unfolded table lists its columns below its name. Everything that is drawn lower, in the whole width of the drawing, moves
  // down to make space for them, so that the order of the boxes stays.
  const HEAD = 44, ROW = 17, MOST_ROWS = 30, LANES = 26;
  const make = (name, attributes, text = "") => {
    const element = document.createElementNS(svg.namespaceURI, name);
    Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
    element.textContent = text;
    return element;
  };
  const layer = svg.querySelector("g"), firstBox = svg.querySelector(".box");
  const places = new Map([...boxes].map(([key, box]) => {
    const [x, y, width, height] = ["x", "y", "width", "height"].map((name) => Number(box.querySelector(".body").getAttribute(name)));
    return [key, { x, y, width, height }];
  }));
  const routes = new Map([...lines].map(([key, line]) => [key, line.getAttribute("d").match(/[MLC][^MLC]+/g)
    .map((step) => step.slice(1).trim().split(" ").pop().split(",").map(Number))]));
  const columnRows = new Map(tables.map((table) => [table.id, all("tr[data-column]", table)]));
  const unfolded = new Set();
  let columnLines = [];
  const grown = (key) => unfolded.has(key) ? (Math.min(columnRows.get(key).length, MOST_ROWS + 1) + 0.5) * ROW : 0;
  // From top to bottom: the height below which a space begins, and by how much what is there moves down, with the spaces above.
  let spaces = [];
  const down = (y) => spaces.findLast((space) => space.from <= y)?.by ?? 0;
  const lowered = (y) => y + down(y);
  const makeSpaces = () => {
    spaces = [];
    for (const key of [...unfolded].sort((one, other) => places.get(one).y - places.get(other).y)) {
      const { y } = places.get(key), above = spaces.at(-1)?.by ?? 0;
      // Tables at one height share the space of the longest list.
      spaces.push({ from: y + HEAD, by: Math.max(above, down(y) + grown(key)) });
    }
  };
  const topOf = (key) => lowered(places.get(key).y);
  const endOf = (key, y) => y - places.get(key).y + topOf(key);
  const bent = (points) => points.reduce((drawn, [x, y], number) => {
    if (!number) return `M${x},${y}`;
    const [fromX, fromY] = points[number - 1], bend = (x - fromX) / 2;
    return drawn + (number % 2 && y !== fromY ? `C${fromX + bend},${fromY} ${x - bend},${y} ${x},${y}` : `L${x},${y}`);
  }, "");
  const routeOf = (from, to) => {
    const points = routes.get(`${from} ${to}`);
    return points && points.map(([x, y], number) =>
      [x, number === 0 ? endOf(from, y) : number === points.length - 1 ? endOf(to, y) : lowered(y)]);
  };
  const rowNumbers = new Map([...columnRows.values()].flatMap((found) => found.map((row, number) => [row.id, number])));
  const rowOf = (column) => {
    const key = tableOf(column), row = rowNumbers.get(column) ?? -1;
    return unfolded.has(key) && row >= 0 ? topOf(key) + HEAD + (Math.min(row, MOST_ROWS) + 0.5) * ROW : topOf(key) + HEAD / 2;
  };
  const drawColumnLines = () => {
    columnLines.forEach((line) => line.remove());
    columnLines = [];
    const byJob = new Map(), known = new Map(), drawn = document.createDocumentFragment();
    const route = (from, to) => {
      const key = `${from} ${to}`;
      if (!known.has(key)) known.set(key, routeOf(from, to));
      return known.get(key);
    };
    for (const row of rows.values()) {
      const values = (row.dataset.values || "").split(" "), rest = deciding?.checked ? (row.dataset.deciding || "").split(" ") : [];
      for (const [steps, kind] of [[values, ""], [rest, " deciding"]]) for (const step of steps.filter(Boolean)) {
        const [column, job] = step.split("@");
        if (!unfolded.has(tableOf(column)) && !unfolded.has(tableOf(row.id))) continue;
        if (!byJob.has(job)) byJob.set(job, []);
        byJob.get(job).push([column, row.id, kind]);
      }
    }
    for (const [job, pairs] of byJob) pairs.forEach(([from, to, kind], number) => {
      const before = route(tableOf(from), job), after = route(job, tableOf(to));
      if (!before || !after) return;
      const lane = LANES * ((number + 0.5) / pairs.length - 0.5);
      const middle = [...before.slice(1), ...after.slice(0, -1)].map(([x, y]) => [x, y + lane]);
      const path = bent([[before[0][0], rowOf(from)], ...middle, [after.at(-1)[0], rowOf(to)]]);
      const line = make("path", { class: `column-edge${kind}`, d: path, "data-from": from, "data-to": to });
      drawn.append(line);
      columnLines.push(line);
    });
    layer.insertBefore(drawn, firstBox);
  };
  const listColumns = (key) => {
    const { x, y, width } = places.get(key), list = make("g", { class: "columns" }), found = columnRows.get(key);
    list.append(make("path", { class: "rule", d: `M${x + 5},${y + HEAD - 2}H${x + width}` }));
    const most = Math.floor((width - 26) / 7.2), shortened = (name) => name.length > most ? `${name.slice(0, most - 1)}…` : name;
    found.slice(0, MOST_ROWS).forEach((row, number) => {
      const text = make("text", { class: "column", x: x + 14, y: y + HEAD + (number + 0.5) * ROW + 4, "data-column": row.id }, shortened(nameOf(row)));
      text.addEventListener("click", (event) => { event.preventDefault(); event.stopPropagation(); traceColumn(row); });
      list.append(text);
    });
    if (found.length > MOST_ROWS) list.append(make("text", { class: "note", x: x + 14, y: y + HEAD + (MOST_ROWS + 0.5) * ROW + 4 },
      `and ${found.length - MOST_ROWS} more`));
    return list;
  };
  const setUnfolded = (key, open) => {
    const box = boxes.get(key);
    if (open) { unfolded.add(key); box.append(listColumns(key)); }
    else { unfolded.delete(key); box.querySelector(".columns").remove(); }
    all("rect", box).forEach((part) => part.setAttribute("height", places.get(key).height + grown(key)));
  };
  const moveAll = () => {
    boxes.forEach((box, key) => box.setAttribute("transform", `translate(0 ${down(places.get(key).y)})`));
    lines.forEach((line, key) => line.setAttribute("d", bent(routeOf(...key.split(" ")))));
    drawColumnLines();
    height = lowered(fullHeight);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.querySelector(".sheet").setAttribute("height", height);
    zoom(scale);
  };
  // The chosen table; of a traced column, all tables on its way; else every table.
  const foldWhat = () => {
    if (traced && traced.columns === null && columnRows.has(traced.start)) return [traced.start];
    return [...columnRows.keys()].filter((key) => !traced || traced.boxes.has(key));
  };
  const foldOrUnfold = (keys) => {
    const some = keys.filter((key) => columnRows.get(key)?.length), open = !some.every((key) => unfolded.has(key));
    some.filter((key) => unfolded.has(key) !== open).forEach((key) => setUnfolded(key, open));
    makeSpaces();
    moveAll();
    show();
  };

  const hint = byId("hint"), more = byId("more"), find = byId("find"), found = byId("found"), deciding = byId("deciding");
  const said = hint.textContent;
  let traced = null, opened = [], hits = [], at = -1, matching = null;

  const open = (table) => { if (!table.open) { table.open = true; opened.push(table); } };
  // A trace shows its own tables; without one, those that are looked for.
  const show = () => {
    const keys = traced ? traced.boxes : matching;
    tables.forEach((table) => { table.hidden = keys !== null && !keys.has(table.id); });
    all(".lit, .missed").forEach((element) => element.classList.remove("lit", "missed"));
    svg.classList.toggle("traced", traced !== null);
    document.body.classList.toggle("tracing-columns", traced !== null && traced.columns !== null);
    if (traced) {
      traced.boxes.forEach((key) => boxes.get(key).classList.add("lit"));
      traced.over.forEach((line) => lines.get(line)?.classList.add("lit"));
      traced.columns?.forEach((column) => rows.get(column).classList.add("lit"));
      columnLines.filter((line) => traced.columns ? traced.columns.has(line.dataset.from) && traced.columns.has(line.dataset.to)
        : [line.dataset.from, line.dataset.to].some((column) => tableOf(column) === traced.start))
        .forEach((line) => line.classList.add("lit"));
      all(".columns .column", svg).forEach((text) => text.classList.toggle("lit", traced.columns?.has(text.dataset.column) ?? false));
    } else if (matching) {
      boxes.forEach((box, key) => box.classList.toggle("missed", !matching.has(key)));
    }
  };
  const end = () => {
    all(".chosen").forEach((element) => element.classList.remove("chosen"));
    all("svg [aria-current]").forEach((box) => box.removeAttribute("aria-current"));
    all("[aria-pressed='true']").forEach((button) => button.setAttribute("aria-pressed", "false"));
    opened.forEach((table) => { table.open = false; });
    opened = [];
    traced = null;
    hint.textContent = said;
    more.hidden = true;
  };
  const clear = () => {
    const chosen = traced && byId(traced.start);
    end();
    show();
    if (chosen) chosen.scrollIntoView({ block: "nearest" });
  };
  const reveal = (key) => {
    const box = boxes.get(key).getBoundingClientRect(), seen = view.getBoundingClientRect();
    if (box.left < seen.left || box.right > seen.right) view.scrollLeft += box.left + box.width / 2 - seen.left - seen.width / 2;
    if (box.top < seen.top || box.bottom > seen.bottom) view.scrollTop += box.top + box.height / 2 - seen.top - seen.height / 2;
  };
  const choose = (key) => {
    const box = boxes.get(key), table = byId(key);
    box.classList.add("chosen");
    if (table) { table.classList.add("chosen"); open(table); }
    reveal(key);
    return box;
  };
  const traceBox = (key) => {
    end();
    const { before, after, seen, over } = boxSteps.trace(key);
    traced = { start: key, boxes: seen, columns: null, over };
    show();
    choose(key).setAttribute("aria-current", "true");
    const datasets = (keys) => [...keys].filter((other) => other !== key && other.startsWith("d")).length;
    hint.textContent = `${nameOf(boxes.get(key))}: comes from ${counted(datasets(before), "table")}, leads to ${datasets(after)}. Esc ends this.`;
    more.hidden = !byId(key);
    more.href = `#${key}`;
  };
  const traceColumn = (row) => {
    end();
    const steps = deciding && deciding.checked ? columnSteps : valueSteps;
    const { before, after, seen, over } = steps.trace(row.id);
    const keys = new Set([...seen].map(tableOf));
    over.forEach((line) => line.split(" ").forEach((key) => keys.add(key)));
    traced = { start: row.id, boxes: keys, columns: seen, over };
    show();
    tables.filter((table) => keys.has(table.id)).forEach(open);
    choose(tableOf(row.id));
    row.classList.add("chosen");
    row.querySelector("button").setAttribute("aria-pressed", "true");
    const unseen = columnSteps.trace(row.id).seen.size - seen.size;
    hint.textContent = `${nameOf(row)}: comes from ${counted(before.size - 1, "column")}, leads to ${after.size - 1}.` +
      `${unseen ? ` Filters, joins and groupings add ${unseen}.` : ""} Esc ends this.`;
    row.scrollIntoView({ block: "nearest" });
  };

  boxes.forEach((box, key) => {
    box.addEventListener("click", (event) => { event.preventDefault(); traceBox(key); });
    box.addEventListener("dblclick", () => foldOrUnfold([key]));
  });
  rows.forEach((row) => {
    const cell = row.querySelector("th");
    const button = document.createElement("button");
    button.type = "button";
    button.title = "Trace this column";
    button.setAttribute("aria-pressed", "false");
    button.append(...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", () => traceColumn(row));
  });
  if (deciding) deciding.addEventListener("change", () => {
    drawColumnLines();
    if (traced && traced.columns) traceColumn(rows.get(traced.start));
  });
  // A link into what is closed, or beside what is traced or looked for.
  all("#tables a[href^='#d'], #more").forEach((link) => link.addEventListener("click", () => {
    const target = byId(link.hash.slice(1));
    const table = target.closest(".table");
    if (table.hidden || (traced && traced.columns && target.matches("tr:not(.lit)"))) clear();
    if (table.hidden) { find.value = ""; search(); }
    for (let part = target.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
  }));

  const own = new Map();
  const words = (element) => {
    if (!own.has(element)) {
      const parts = element.matches(".table") ? all(":scope > summary .name, .urn", element) : [element.querySelector("bdi, title")];
      own.set(element, parts.map((part) => part.textContent).join(" ").toLowerCase());
    }
    return own.get(element);
  };
  const search = () => {
    const wanted = find.value.trim().toLowerCase();
    const has = (element) => words(element).includes(wanted);
    end();
    hits = []; at = -1; matching = null; found.textContent = "";
    if (wanted) {
      const inTables = tables.filter(has), inJobs = [...boxes].filter(([key, box]) => key.startsWith("j") && has(box));
      const inColumns = [...rows.values()].filter(has);
      matching = new Set([...inTables.map((table) => table.id), ...inJobs.map(([key]) => key), ...inColumns.map((row) => tableOf(row.id))]);
      hits = [...inTables.map((table) => table.id), ...inJobs.map(([key]) => key), ...inColumns];
      const counts = [[inTables, "table"], [inJobs, "job"], [inColumns, "column"]].filter(([list]) => list.length);
      found.textContent = counts.map(([list, name]) => counted(list.length, name)).join(", ") || "Nothing has this name.";
      if (hits.length) {
        found.textContent += ". Enter traces the first, then the next.";
        reveal(typeof hits[0] === "string" ? hits[0] : tableOf(hits[0].id));
      }
    }
    show();
  };
  find.addEventListener("input", search);
  find.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !hits.length) return;
    event.preventDefault();
    at = (at + (event.shiftKey ? hits.length - (at < 0 ? 0 : 1) : 1)) % hits.length;
    const hit = hits[at];
    if (typeof hit === "string") traceBox(hit);
    else traceColumn(hit);
    found.textContent = `${at + 1} of ${hits.length}`;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && traced) {
      event.preventDefault(); // the first Esc ends the trace, the next empties the search
      clear();
    } else if (event.key === "/" && !event.target.matches("input")) {
      event.preventDefault();
      find.focus();
    }
  });
  byId("every").addEventListener("click", () => {
    const shown = tables.filter((table) => !table.hidden);
    const close = shown.every((table) => table.open);
    shown.forEach((table) => { table.open = !close; });
  });

  const [width, fullHeight] = svg.getAttribute("viewBox").split(" ").slice(2).map(Number);
  let scale = 1, height = fullHeight;
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
    "zoom-one": () => zoom(1), unfold: () => foldOrUnfold(foldWhat()) };
  Object.entries(act).forEach(([id, action]) => byId(id)?.addEventListener("click", action));
  view.addEventListener("keydown", (event) => {
    const action = { "+": "zoom-in", "-": "zoom-out", "0": "zoom-all", "c": "unfold" }[event.key];
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
  // The link to what failed leads into the closed list of runs.
  document.querySelector("a[href='#failed']")?.addEventListener("click", () => {
    if (byId("runs").matches("details")) byId("runs").open = true;
  });
  // The first view shows everything, or else, with labels of 11 pixels, what is made in the end.
  fit(0.92);
  const made = [...boxSteps.back.keys()].filter((key) => key.startsWith("d") && !boxSteps.on.has(key))
    .sort((one, other) => places.get(one).y - places.get(other).y);
  if (made.length) {
    const middle = made[made.length >> 1];
    reveal(middle);
    const beside = made.filter((key) => places.get(key).x === places.get(middle).x);
    view.scrollLeft += 24 - view.getBoundingClientRect().right
      + Math.max(...beside.map((key) => boxes.get(key).getBoundingClientRect().right));
  }
})();
