// The database's clock, as far as this page knows it: leases end by that clock, and this computer's may be wrong.
//
//   noteServerTime(instant)   an answer made just now had the time `instant`
//   serverNow()               milliseconds since 1970 by that clock
//
// The header Date of any answer counts whole seconds, so differences below two seconds are ignored; "at" in a body is
// exact.

let offset = 0;

export function noteServerTime(instant, {exact = false} = {}) {
  const server = new Date(instant).getTime();
  if (Number.isNaN(server)) return;
  const difference = server - Date.now();
  if (exact) offset = Math.abs(difference) < 250 ? 0 : difference;
  else if (Math.abs(difference - offset) > 2000) offset = difference;
}

export function serverNow() {
  return Date.now() + offset;
}
