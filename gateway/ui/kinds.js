// The kinds of rejected writes: name, shape and meaning of each. The gateway says of which kind a rejection is; this page
// does not derive it. Pure.
//
//   kinds[kind] → {label, shape, meaning}; kindNames: all of them, the most serious first
//   counted(kind, number) → '2 zombie writes'
//   isDefect(kind)        whether the client must be corrected: zombies and data conflicts happen in healthy ones, too
//   glyph(kind, x, y, r)  the path of its shape, about the size of a circle of radius r
//   codes[code]           the meaning of a code of a rejected write; codeNames: all of them

import {plural} from './format.js';

export const kinds = {
  zombie: {label: 'Zombie', shape: 'circle', nouns: ['zombie write'],
    meaning: 'The writer had lost its lock: its lease had ended, or a newer token was granted.'},
  numbering: {label: 'Reused number', shape: 'hexagon', nouns: ['reused number'],
    meaning: 'A client bug: it numbered two writes of a token alike, or out of order.'},
  reader: {label: 'Reader’s write', shape: 'square', nouns: ['write by a reader', 'writes by readers'],
    meaning: 'A client bug: the token is that of a shared lease, which can’t write.'},
  misuse: {label: 'No valid token', shape: 'cross',
    nouns: ['write without a valid token', 'writes without a valid token'],
    meaning: 'A client bug: no token, one that was never granted, or another lease’s lease_id.'},
  conflict: {label: 'Data conflict', shape: 'wedge', nouns: ['data conflict'],
    meaning: 'The record has another version than the write requires: compare-and-swap, as intended.'},
};

export const kindNames = Object.keys(kinds);

export const kindLabel = (kind) => kinds[kind]?.label ?? kind;

export function counted(kind, number) {
  return plural(number, ...(kinds[kind]?.nouns ?? ['other rejection']));
}

export function isDefect(kind) {
  return kind !== 'zombie' && kind !== 'conflict';
}

const n = (value) => Math.round(value * 10) / 10;

const shapes = {
  circle: (x, y, r) => `M${n(x - r)} ${n(y)}a${n(r)} ${n(r)} 0 1 0 ${n(2 * r)} 0a${n(r)} ${n(r)} 0 1 0 ${n(-2 * r)} 0z`,
  wedge: (x, y, r) => polygon(x, y, [[0, 1.25 * r], [1.15 * r, -0.85 * r], [-1.15 * r, -0.85 * r]]),
  square: (x, y, r) => polygon(x, y, [[-0.9 * r, -0.9 * r], [0.9 * r, -0.9 * r], [0.9 * r, 0.9 * r],
    [-0.9 * r, 0.9 * r]]),
  hexagon: (x, y, r) => polygon(x, y, [[-1.15 * r, 0], [-0.58 * r, -r], [0.58 * r, -r], [1.15 * r, 0], [0.58 * r, r],
    [-0.58 * r, r]]),
  cross: (x, y, r) => {
    const [a, b] = [0.38 * r, 1.1 * r];
    return polygon(x, y, [[-a, -b], [a, -b], [a, -a], [b, -a], [b, a], [a, a], [a, b], [-a, b], [-a, a], [-b, a],
      [-b, -a], [-a, -a]]);
  },
};

export function glyph(kind, x, y, r) {
  return shapes[kinds[kind]?.shape ?? 'cross'](x, y, r);
}

function polygon(x, y, points) {
  return 'M' + points.map(([dx, dy]) => `${n(x + dx)} ${n(y + dy)}`).join('L') + 'z';
}

export const codes = {
  token_stale: 'The token is not the newest, its lease has ended, or its sequence was used before.',
  lease_expired: 'The token is the newest, but its lease has expired, and the policy requires a live one.',
  lease_mismatch: 'The lease_id is not that of the token’s lease.',
  token_unknown: 'This token was never granted.',
  token_required: 'The write has no token.',
  version_mismatch: 'The record has another version than the write requires.',
  token_reused: 'The transaction with this token and sequence was committed before.',
  truncate: 'A protected table whose rows belong to many resources was to be truncated.',
};

export const codeNames = Object.keys(codes);
