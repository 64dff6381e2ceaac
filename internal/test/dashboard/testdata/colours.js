// Returns the luminance of the background, and the texts with a contrast below 4.5, as WCAG 2.2 defines it.
(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const parse = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return {rgb: [r, g, b], alpha: a / 255};
  };
  const luminance = (rgb) => rgb.map((c) => c / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const {rgb, alpha} = parse(getComputedStyle(node).backgroundColor);
      if (alpha > 0.99) return rgb;
    }
    return [255, 255, 255];
  };
  const skipped = ":disabled, .hidden, .skip, [aria-hidden=true], noscript, option";
  const faint = [];
  for (const node of document.body.querySelectorAll("*")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim() !== "");
    if (!own || !node.checkVisibility() || node.closest(skipped)) continue;
    const style = getComputedStyle(node);
    const colour = parse(node instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [luminance(colour.rgb), luminance(behind(node))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5 || colour.alpha < 0.99) faint.push(contrast.toFixed(2) + " " + node.outerHTML.slice(0, 120));
  }
  return {Background: luminance(parse(getComputedStyle(document.body).backgroundColor).rgb), Faint: faint.slice(0, 8)};
})()
