import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {test} from 'node:test';

import {kindNames} from '../kinds.js';

// Contrasts as WCAG 2 defines them: 4.5 for texts, 3 for marks of charts and edges of controls.

const css = readFileSync(new URL('../base.css', import.meta.url), 'utf8');

const tokens = [...css.matchAll(/--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)/g)];

const themes = Object.fromEntries(['light', 'dark'].map((theme, at) =>
  [theme, Object.fromEntries(tokens.map(([, name, ...colours]) => [name, colours[at]]))]));

function luminance(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a, b) {
  const [dark, light] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (light + 0.05) / (dark + 0.05);
}

for (const [theme, colours] of Object.entries(themes)) {
  const check = (front, back, least) => {
    assert.ok(colours[front] && colours[back], `${front} or ${back} is missing`);
    const is = contrast(colours[front], colours[back]);
    assert.ok(is >= least, `${theme}: --${front} on --${back} has ${is.toFixed(2)}, not ${least}`);
  };
  test(`texts have a contrast of 4.5, ${theme}`, () => {
    for (const back of ['bg', 'surface', 'raised']) for (const front of ['text', 'muted', 'link']) check(front, back,
      4.5);
    for (const tone of ['good', 'warn', 'bad', 'info']) {
      check(tone, tone + '-bg', 4.5);
      check(tone, 'surface', 4.5);
    }
    // highlighted rows
    for (const back of ['warn-bg', 'info-bg']) for (const front of ['text', 'muted', 'link']) check(front, back, 4.5);
  });
  test(`marks have a contrast of 3, ${theme}`, () => {
    for (const kind of kindNames) check('kind-' + kind, 'surface', 3);
    for (const series of ['series-1', 'series-2', 'series-3', 'series-bad', 'border-strong', 'focus']) check(series,
      'surface', 3);
    check('focus', 'bg', 3);
  });
}
