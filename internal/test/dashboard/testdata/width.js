// Returns the elements that are wider than the page.
(() => {
  const room = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= room) return [];
  const right = (node) => Math.round(node.getBoundingClientRect().right);
  return [...document.body.querySelectorAll("*")].filter((node) => right(node) > room + 1).slice(0, 8)
    .map((node) => node.tagName + "." + node.getAttribute("class") + " " + right(node) + " of " + room);
})()
