// Returns what a screen reader could not announce.
(() => {
  const faults = [];
  const nameOf = (node) => node.getAttribute("aria-label")?.trim() || node.innerText?.trim()
    || node.getAttribute("title") || (node.getAttribute("aria-labelledby") ?? "").split(" ")
      .map((id) => document.getElementById(id)?.innerText).join(" ").trim();
  const check = (selector, text, holds) => {
    for (const node of document.querySelectorAll(selector)) {
      if (node.checkVisibility() && !holds(node)) faults.push(text + ": " + node.outerHTML.slice(0, 160));
    }
  };
  if (document.querySelectorAll("h1").length !== 1) faults.push("the page does not have exactly one h1");
  if (document.querySelectorAll("main").length !== 1) faults.push("the page does not have exactly one main");
  if (!document.documentElement.lang) faults.push("the page has no language");
  check("button, a[href], section, nav, [role=group], [role=region]", "no name", nameOf);
  check("input, select, textarea", "no label", (node) => node.labels?.length || node.getAttribute("aria-label"));
  check("th", "no scope", (node) => node.scope);
  check("table", "no caption", (node) => node.caption?.textContent || nameOf(node));
  check("svg", "neither hidden nor an image", (node) => node.closest("[aria-hidden=true], [role=img]"));
  check("[role=img]", "an image without a text",
    (node) => node.getAttribute("aria-label") || node.getAttribute("aria-labelledby"));
  const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
  for (const id of new Set(ids.filter((id, at) => ids.indexOf(id) !== at))) faults.push("duplicate id " + id);
  return faults;
})()
