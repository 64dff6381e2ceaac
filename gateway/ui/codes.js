// The codes of rejected writes: the shape, the name of the colour (base.css: --code-…) and the meaning of each. Pure.
//
//   codes[code] → {shape, meaning}
//   glyph(code, x, y, r) → the path of its shape, about the size of a circle of radius r

export const codes = {
  token_stale: {shape: 'circle',
    meaning: 'The token is not the newest, its lease has ended, or its sequence was used before.'},
  lease_expired: {shape: 'triangle',
    meaning: 'The token is the newest, but its lease has expired, and the policy requires a live one.'},
  lease_mismatch: {shape: 'square', meaning: 'The lease_id is not that of the token’s lease.'},
  token_unknown: {shape: 'diamond', meaning: 'This token was never granted.'},
  token_required: {shape: 'cross', meaning: 'The write has no token.'},
  version_mismatch: {shape: 'wedge', meaning: 'The record has another version than the write requires.'},
  token_reused: {shape: 'hexagon', meaning: 'The transaction with this token and sequence was committed before.'},
  truncate: {shape: 'bar', meaning: 'A protected table whose rows belong to many resources was to be truncated.'},
};

export const codeNames = Object.keys(codes);

const n = (value) => Math.round(value * 10) / 10;

const shapes = {
  circle: (x, y, r) => `M${n(x - r)} ${n(y)}a${n(r)} ${n(r)} 0 1 0 ${n(2 * r)} 0a${n(r)} ${n(r)} 0 1 0 ${n(-2 * r)} 0z`,
  triangle: (x, y, r) => polygon(x, y, [[0, -1.25 * r], [1.15 * r, 0.85 * r], [-1.15 * r, 0.85 * r]]),
  wedge: (x, y, r) => polygon(x, y, [[0, 1.25 * r], [1.15 * r, -0.85 * r], [-1.15 * r, -0.85 * r]]),
  square: (x, y, r) => polygon(x, y, [[-0.9 * r, -0.9 * r], [0.9 * r, -0.9 * r], [0.9 * r, 0.9 * r],
    [-0.9 * r, 0.9 * r]]),
  diamond: (x, y, r) => polygon(x, y, [[0, -1.3 * r], [1.1 * r, 0], [0, 1.3 * r], [-1.1 * r, 0]]),
  hexagon: (x, y, r) => polygon(x, y, [[-1.15 * r, 0], [-0.58 * r, -r], [0.58 * r, -r], [1.15 * r, 0], [0.58 * r, r],
    [-0.58 * r, r]]),
  bar: (x, y, r) => polygon(x, y, [[-1.3 * r, -0.5 * r], [1.3 * r, -0.5 * r], [1.3 * r, 0.5 * r], [-1.3 * r, 0.5 * r]]),
  cross: (x, y, r) => {
    const [a, b] = [0.38 * r, 1.1 * r];
    return polygon(x, y, [[-a, -b], [a, -b], [a, -a], [b, -a], [b, a], [a, a], [a, b], [-a, b], [-a, a], [-b, a],
      [-b, -a], [-a, -a]]);
  },
};

export function glyph(code, x, y, r) {
  return shapes[codes[code]?.shape ?? 'cross'](x, y, r);
}

function polygon(x, y, points) {
  return 'M' + points.map(([dx, dy]) => `${n(x + dx)} ${n(y + dy)}`).join('L') + 'z';
}
