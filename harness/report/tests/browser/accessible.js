// What a reader who sees no pictures and has no mouse needs: a list of what is missing.
(() => {
  const wrong = [];
  const words = (id) => (id ?? "").split(" ").map((one) => document.getElementById(one)?.textContent ?? "").join(" ").trim();
  for (const picture of document.querySelectorAll("main svg")) {
    const name = picture.getAttribute("aria-label") ?? words(picture.getAttribute("aria-labelledby"));
    if (picture.getAttribute("role") !== "img") wrong.push("a picture without role");
    if (name.length < 5) wrong.push("a picture without a name");
    if (words(picture.getAttribute("aria-describedby")).length < 40) wrong.push(`${name}: no text instead`);
  }
  let level = 0;
  for (const heading of document.querySelectorAll("h1, h2, h3, h4")) {
    const next = Number(heading.tagName[1]);
    if (next > level + 1) wrong.push(`h${next} after h${level}: ${heading.textContent}`);
    level = next;
  }
  for (const mark of ["header", "main", "footer", "nav[aria-label]"])
    if (document.querySelectorAll(mark).length !== 1) wrong.push(`not one ${mark}`);
  for (const table of document.querySelectorAll("table"))
    if (!table.caption?.textContent || table.querySelectorAll("thead th[scope]").length === 0) wrong.push("a table without caption or headers");
  for (const input of document.querySelectorAll("input, button"))
    if (!(input.labels?.[0]?.textContent ?? "") && !input.getAttribute("aria-label") && !input.textContent.trim()) wrong.push("a control without a name");
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  if (new Set(ids).size !== ids.length) wrong.push("an id that is there twice");
  for (const link of document.querySelectorAll('a[href^="#"]'))
    if (!document.querySelector(link.getAttribute("href"))) wrong.push(`${link.href} leads nowhere`);
  return wrong;
})()
