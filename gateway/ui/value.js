// The value of a record, prepared to be shown as text. Pure.
//
//   await firstBytes(body, max) → {bytes, whole}     of a ReadableStream; it is canceled after max bytes
//   shownValue({bytes, whole}) → {kind: 'text', text}, or {kind: 'binary', text: the first bytes as hexadecimal}
//
// The bytes alone decide, and not the content type that the writer claimed: text is UTF-8 without control characters.

const hexMax = 512;

export async function firstBytes(body, max) {
  const reader = body.getReader();
  const parts = [];
  let length = 0;
  while (length <= max) {
    const {value, done} = await reader.read();
    if (done) break;
    parts.push(value);
    length += value.length;
  }
  if (length > max) await reader.cancel();
  const all = new Uint8Array(length);
  parts.reduce((at, part) => (all.set(part, at), at + part.length), 0);
  return {bytes: all.subarray(0, max), whole: length <= max};
}

export function shownValue({bytes, whole}) {
  try {
    const text = new TextDecoder('utf-8', {fatal: true, ignoreBOM: true}).decode(bytes, {stream: !whole});
    if (!/[\0-\x08\x0b\x0c\x0e-\x1f\x7f]/.test(text)) return {kind: 'text', text};
  } catch {
    // not UTF-8
  }
  return {kind: 'binary', text: hex(bytes.subarray(0, hexMax))};
}

// hex formats 16 bytes a line, with their offset and their ASCII characters.
function hex(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const line = [...bytes.subarray(at, at + 16)];
    const ascii = line.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : '.')).join('');
    lines.push(at.toString(16).padStart(4, '0') + '  ' +
      line.map((byte) => byte.toString(16).padStart(2, '0')).join(' ').padEnd(47) + '  ' + ascii);
  }
  return lines.join('\n');
}
