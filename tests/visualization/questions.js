// What the tests ask of the page in test_browser.py.
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const named = (element) => element.querySelector("bdi").textContent;
const titleOf = (key) => document.querySelector(`.box[data-key=${key}] .title`).textContent;
const tableOf = (row) => row.closest(".table").querySelector(".name").textContent;

// The traced lines, by the names that the boxes show.
const litLines = () => all(".edge.lit").map((edge) => `${titleOf(edge.dataset.from)} > ${titleOf(edge.dataset.to)}`);

// The columns that can be seen, with their tables.
const shownColumns = () => all("tr[data-column]").filter((row) => row.checkVisibility()).map((row) =>
  `${tableOf(row)}.${named(row)}`);

// The row of a column, in its table, which is opened.
const rowOf = (table, column) => {
  const opened = all(".table").find((each) => named(each) === table);
  opened.open = true;
  return all("tr[data-column]", opened).find((row) => named(row) === column);
};

const boxOf = (title) => all(".box").find((box) => box.querySelector(".title").textContent === title);

// Press everything, and count it.
const pressAll = () => {
  const every = all("button, summary, .box, input[type=checkbox], #tables a");
  every.forEach((element) => element.dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true})));
  return every.length;
};

// Count the controls, and note those that get the focus.
const watchFocus = () => {
  window.reached = new Set();
  document.addEventListener("focusin", (event) => window.reached.add(event.target));
  return all("a, button, input, summary, .view").filter((each) => each.checkVisibility()).length;
};

const unfoldAll = (open) => all("details").forEach((part) => { part.open = open; });

// WCAG 2.2, 1.4.3: the contrast of each text with its background; text that a trace dims counts undimmed.
const contrasts = () => {
  const parse = (colour) => colour.match(/[\d.]+/g).map(Number);
  const luminance = (colour) => parse(colour).slice(0, 3).map((value) => value / 255)
    .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, place) => sum + value * [0.2126, 0.7152, 0.0722][place], 0);
  const behind = (element) => {
    if (element.closest(".box")) return getComputedStyle(element.closest(".box").querySelector(".body")).fill;
    for (let part = element; part; part = part.parentElement) {
      const colour = getComputedStyle(part).backgroundColor;
      if ((parse(colour)[3] ?? 1) > 0) return colour;
    }
  };
  return all("body *").filter((element) => element.checkVisibility()
    && [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())
    && !element.closest("title, script")).map((element) => {
    const style = getComputedStyle(element);
    const [one, other] = [element.closest("svg") ? style.fill : style.color, behind(element)].map(luminance);
    return [element.textContent.trim().slice(0, 30), (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05)];
  });
};

// The columns in the drawing, the lines between them, those that are lit, and the number of boxes that overlap.
const picture = () => {
  const end = (line, side) => named(document.getElementById(line.dataset[side]));
  const rects = all(".box .body").map((body) => body.getBoundingClientRect());
  const meet = (one, other) => one.left < other.right && other.left < one.right && one.top < other.bottom
    && other.top < one.bottom;
  return {
    columns: all(".columns .column").map((text) => text.textContent),
    lines: all(".column-edge").map((line) => `${end(line, "from")} > ${end(line, "to")}`),
    lit: all(".column-edge.lit").map((line) => end(line, "from")),
    overlaps: rects.filter((one, at) => rects.slice(at + 1).some((other) => meet(one, other))).length,
  };
};

// The boxes that can be seen without scrolling the drawing, and the height of the smallest letters in it.
const boxesInView = () => {
  const view = document.querySelector(".view").getBoundingClientRect();
  return all(".box").filter((box) => {
    const {left, right, top, bottom} = box.getBoundingClientRect();
    return left >= view.left - 1 && right <= view.right + 1 && top >= view.top - 1 && bottom <= view.bottom + 1;
  }).map((box) => box.querySelector(".title").textContent);
};
const smallestLabel = () => {
  const svg = document.querySelector("svg.network"), scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  return Math.min(...all("text", svg).map((text) => parseFloat(getComputedStyle(text).fontSize))) * scale;
};

// What the window cuts at its sides; the drawing scrolls.
const clipped = () => all("main *, header *").filter((part) => {
  const {left, right, width, height} = part.getBoundingClientRect();
  return part.checkVisibility() && width && height && !part.matches(".skip") && !part.closest(".view svg") && (left < -1 || right > innerWidth + 1);
}).map((part) => `${part.tagName} ${part.id || part.getAttribute("class")} ${part.textContent.slice(0, 40)}`);
