// Sorts and filters tables, reads out settings, enlarges figures and zooms timelines. The page is complete without it.
"use strict";
document.documentElement.classList.add("scripted");

const MOST_ROWS = 200;
const MOST_ZOOM = 256;

const all = (selector, within = document) => [...within.querySelectorAll(selector)];

/** A new element with properties and children. */
function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

/** The value by which a cell is sorted: its first number if its column has numbers, else its text. */
function value(text, isText) {
  if (isText) return text.trim();
  const number = parseFloat(text.trim().replace(/^[^\d.+-]+/, ""));
  return Number.isNaN(number) ? undefined : number;
}

/** Compares two values; what is not there comes last in both directions. */
function compare(a, b, sign) {
  if (a === b) return 0;
  if (a === undefined || a === "") return 1;
  if (b === undefined || b === "") return -1;
  return sign * (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
}

/** The rows of a table: those of the page, and those that it holds as data, which become elements when they are shown. */
function rowsOf(region, table) {
  const rows = [...table.tBodies[0].rows].map((element) => ({ element, cells: [...element.cells].map((cell) => cell.textContent) }));
  const data = region.nextElementSibling;
  if (!data?.matches("script.rows")) return { rows, isWhole: true };
  const isText = all("thead th", table).map((header) => header.classList.contains("t"));
  const cell = (textContent, at) => make("td", { textContent, className: !isText[at] ? "" : textContent.length > 48 ? "t long" : "t" });
  for (const cells of JSON.parse(data.textContent)) {
    rows.push({ cells, get element() {
      const element = make("tr", {}, ...cells.map(cell));
      Object.defineProperty(this, "element", { value: element });
      return element;
    } });
  }
  return { rows, isWhole: false };
}

/** Makes the headers of a table buttons that sort its rows. */
function sortable(table, rows, changed) {
  const headers = all("thead th", table);
  headers.forEach((header, at) => {
    const button = make("button", { type: "button" }, ...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const isAscending = header.getAttribute("aria-sort") !== "ascending";
      headers.forEach((other) => other.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", isAscending ? "ascending" : "descending");
      const isText = header.classList.contains("t");
      const values = new Map(rows.map((row) => [row, value(row.cells[at], isText)]));
      rows.sort((a, b) => compare(values.get(a), values.get(b), isAscending ? 1 : -1));
      changed();
    });
  });
}

/** Adds a filter to a table, and shows the first rows only until all are asked for. */
function filtered(region, table, rows, isWhole) {
  const label = region.getAttribute("aria-label");
  const input = make("input", { type: "search", autocomplete: "off", spellcheck: false });
  const count = make("span", { role: "status" });
  const more = make("button", { type: "button", hidden: true });
  const rest = isWhole ? undefined : region.nextElementSibling.nextElementSibling;
  region.before(make("div", { className: "tools" }, make("label", {}, `Filter ${label.toLowerCase()}`, input), count, more));
  const body = table.tBodies[0];
  let most = MOST_ROWS;
  function show() {
    const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (row) => {
      row.words ??= row.cells.join(" ").toLowerCase();
      return wanted.every((word) => row.words.includes(word));
    };
    const found = rows.filter(matches);
    const shown = found.slice(0, most);
    if (isWhole) {
      // On paper all of them are there.
      const isShown = new Set(shown);
      for (const row of rows) row.element.hidden = !isShown.has(row);
      body.append(...rows.map((row) => row.element));
    } else {
      body.replaceChildren(...shown.map((row) => row.element));
      rest.textContent = `${shown.length} of ${rows.length} rows.`;
    }
    count.textContent = wanted.length || shown.length < found.length ? `${shown.length} of ${rows.length} rows` : "";
    more.hidden = shown.length === found.length;
    more.textContent = `Show all ${found.length} rows`;
  }
  let waiting;
  input.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(show, rows.length > 1000 ? 150 : 0);
  });
  more.addEventListener("click", () => {
    most = Infinity;
    show();
  });
  show();
  return show;
}

for (const region of all(".sortable")) {
  const table = region.querySelector("table");
  const { rows, isWhole } = rowsOf(region, table);
  const order = () => table.tBodies[0].append(...rows.map((row) => row.element));
  const changed = region.classList.contains("filtered") ? filtered(region, table, rows, isWhole) : order;
  sortable(table, rows, changed);
}

// Settings: what is pointed at or has the focus is read out; arrow keys move within a map.
for (const maps of all(".maps")) {
  const reading = maps.previousElementSibling;
  // All about a setting: its time and interval, its threshold and cycle time from the headers, its map, and the rest.
  const about = (cell) => {
    const map = cell.closest("table");
    const [time, interval] = [cell.firstChild.textContent.replace("★", "").trim(), cell.querySelector("small").textContent];
    const setting = [map.tHead.rows[1].cells[cell.cellIndex], cell.parentNode.cells[0]].map((header) => header.textContent);
    return `${time} ms${interval ? ` ${interval}` : ", no interval"}; ${setting[0]} MiB, ${setting[1]} ms; ${map.caption.textContent}; ${cell.dataset.words}`;
  };
  const read = (event) => {
    const cell = event.target.closest(".cell");
    if (cell) reading.textContent = about(cell);
  };
  for (const cell of all(".cell", maps)) {
    cell.dataset.words = cell.title;
    cell.removeAttribute("title");
    cell.tabIndex = -1;
  }
  for (const map of all(".map", maps)) {
    const first = map.querySelector(".best") ?? map.querySelector(".cell");
    if (first) first.tabIndex = 0;
  }
  const best = maps.querySelector(".best");
  if (best) reading.textContent = about(best);
  maps.addEventListener("pointerover", read);
  maps.addEventListener("focusin", read);
  maps.addEventListener("keydown", (event) => {
    const [right, down] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key] ?? [];
    const cell = event.target.closest(".cell");
    if (right === undefined || !cell) return;
    const row = all("tr", cell.closest("tbody"))[cell.parentNode.sectionRowIndex + down];
    const next = row?.cells[cell.cellIndex + right];
    if (!next?.classList.contains("cell")) return;
    event.preventDefault();
    cell.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}

// Figures at their full size.
for (const card of all(".card")) {
  const picture = card.querySelector("svg");
  const title = picture.querySelector("title").textContent;
  const open = make("button", { type: "button" }, "Larger");
  open.setAttribute("aria-label", `Larger: ${title}`);
  card.append(open);
  open.addEventListener("click", () => {
    const close = make("button", { type: "button" }, "Close");
    const large = picture.cloneNode(true);
    large.style.width = `${Math.max(picture.dataset.width * 0.75, innerWidth - 40)}px`;
    const dialog = make("dialog", {}, close, large);
    dialog.setAttribute("aria-label", title);
    document.body.append(dialog);
    close.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => dialog.remove());
    dialog.showModal();
  });
}

// Timelines: buttons and keys zoom; the scroll bar and arrow keys move.
for (const timeline of all(".timeline")) {
  const [scroll, sheet, ticks] = [".scroll", ".sheet", ".ticks"].map((name) => timeline.querySelector(name));
  const length = Number(timeline.dataset.ms);
  const reading = timeline.nextElementSibling;
  let zoom = 1;
  const label = (ms, step) => `${ms.toFixed(Math.max(0, -Math.floor(Math.log10(step))))} ms`;
  function draw() {
    const least = (length * 90) / (scroll.clientWidth * zoom);
    const power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((times) => times * power).find((step) => step >= least);
    const marks = [];
    for (let ms = 0; ms < length - step / 2; ms += step) marks.push(make("span", { textContent: label(ms, step) }));
    marks.forEach((mark, at) => (mark.style.left = `${(100 * at * step) / length}%`));
    const end = make("span", { textContent: `${Number(length.toPrecision(4))} ms` });
    end.style.left = "100%";
    ticks.replaceChildren(...marks, end);
  }
  function zoomTo(next, at = 0.5) {
    next = Math.min(MOST_ZOOM, Math.max(1, next));
    const middle = (scroll.scrollLeft + at * scroll.clientWidth) / (scroll.clientWidth * zoom);
    zoom = next;
    sheet.style.setProperty("--zoom", zoom);
    draw();
    scroll.scrollLeft = middle * scroll.clientWidth * zoom - at * scroll.clientWidth;
  }
  const button = (text, name, act) => {
    const made = make("button", { type: "button", textContent: text });
    made.setAttribute("aria-label", name);
    made.addEventListener("click", act);
    return made;
  };
  timeline.before(make("div", { className: "tools" },
    button("+", "Zoom in", () => zoomTo(zoom * 2)),
    button("−", "Zoom out", () => zoomTo(zoom / 2)),
    button("Whole step", "Show the whole step", () => zoomTo(1)),
    "keys + and −, or the wheel with Ctrl"));
  scroll.addEventListener("keydown", (event) => {
    const times = { "+": 2, "=": 2, "-": 0.5 }[event.key];
    if (times && !event.ctrlKey && !event.metaKey) zoomTo(zoom * times);
  });
  scroll.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const at = (event.clientX - scroll.getBoundingClientRect().left) / scroll.clientWidth;
    zoomTo(zoom * 2 ** (-event.deltaY / 200), at);
  }, { passive: false });
  timeline.addEventListener("pointerover", (event) => {
    const title = event.target.closest("rect")?.querySelector("title");
    if (title) reading.textContent = title.textContent;
  });
  addEventListener("resize", draw);
  draw();
}

// Lines to copy.
for (const lines of all(".lines")) {
  if (!navigator.clipboard) break;
  const button = make("button", { type: "button" }, "Copy");
  button.setAttribute("aria-label", `Copy the lines ${lines.querySelector("p").textContent}`);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(lines.querySelector("code").textContent.trim());
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(lines.querySelector("code"));
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  lines.append(button);
}

// On paper everything is open but what is long and no result.
addEventListener("beforeprint", () => all("details:not(.long)").forEach((details) => (details.open = true)));
