// Numbers, durations, sizes and times as texts. Pure: no element, no clock of its own.
//
// In a table, units are in the heading or alike in every cell; CSS aligns digits (tabular-nums).

const whole = new Intl.NumberFormat('en-US', {maximumFractionDigits: 0});
const none = '–'; // for an absent value

// count is a whole number with grouped thousands.
export function count(number) {
  return isNumber(number) ? whole.format(number) : none;
}

// compact is a number in at most four characters and a unit: 950, 1.2k, 34k, 5.6M.
export function compact(number) {
  if (!isNumber(number)) return none;
  const size = Math.abs(number);
  if (size < 1000) return trimmed(number, size < 10 ? 1 : 0);
  const [unit, name] = [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']].find(([unit]) => size >= unit * 0.9995);
  return trimmed(number / unit, size / unit < 9.95 ? 1 : 0) + name;
}

// rate is a number of events per second, without its unit.
export function rate(number) {
  if (!isNumber(number)) return none;
  if (number === 0) return '0';
  if (number < 0.01) return '<0.01';
  if (number < 1) return number.toFixed(2);
  if (number < 10) return number.toFixed(1);
  return whole.format(number);
}

// duration formats milliseconds in their two greatest units. fixed keeps trailing zeros, for columns.
export function duration(ms, {fixed = false} = {}) {
  const trim = fixed ? (number, decimals) => number.toFixed(decimals) : trimmed;
  if (!isNumber(ms)) return none;
  if (ms < 0) return '−' + duration(-ms, {fixed});
  if (ms === 0) return '0 ms';
  if (ms < 0.9995) return trim(ms * 1000, 0) + ' µs';
  if (ms < 9.995) return trim(ms, 2) + ' ms';
  if (ms < 99.95) return trim(ms, 1) + ' ms';
  if (ms < 999.5) return trim(ms, 0) + ' ms';
  if (ms < 9995) return trim(ms / 1000, 2) + ' s';
  if (ms < 59950) return trim(ms / 1000, 1) + ' s';
  const seconds = Math.round(ms / 1000);
  if (seconds < 3600) return twoUnits(seconds, 60, 'min', 1, 's');
  if (seconds < 86400) return twoUnits(Math.round(seconds / 60) * 60, 3600, 'h', 60, 'min');
  return twoUnits(Math.round(seconds / 3600) * 3600, 86400, 'd', 3600, 'h');
}

// age formats how many milliseconds ago something happened, in one unit, so that it is readable while it grows.
export function age(ms) {
  if (!isNumber(ms)) return none;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 1) return 'now';
  if (seconds < 60) return seconds + ' s ago';
  if (seconds < 3600) return Math.floor(seconds / 60) + ' min ago';
  if (seconds < 86400) return Math.floor(seconds / 3600) + ' h ago';
  return Math.floor(seconds / 86400) + ' d ago';
}

// bytes is a size in binary units.
export function bytes(number) {
  if (!isNumber(number)) return none;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (number >= 1023.5 && at < units.length - 1) {
    number /= 1024;
    at++;
  }
  return trimmed(number, at > 0 && number < 99.95 ? 1 : 0) + ' ' + units[at];
}

// token is a fencing token, with its sequence if there is one: 34.2.
export function token(number, sequence) {
  if (!isNumber(number)) return none;
  return isNumber(sequence) ? number + '.' + sequence : String(number);
}

// short cuts a long text in its middle, since names differ at either end.
export function short(text, max) {
  const letters = [...text];
  if (letters.length <= max) return text;
  const end = Math.floor((max - 1) * 0.4);
  return letters.slice(0, max - 1 - end).join('') + '…' + letters.slice(-end).join('');
}

// isolated is short for SVG, which has no bdi: characters isolate the text.
export function isolated(text, max) {
  return '\u2068' + short(text, max) + '\u2069';
}

// segments cuts a name after its separators, where a line may break: public. accounts, jobs/ 42. A number stays whole.
export function segments(text) {
  return text.split(/(?<=[/:_@-]|\.(?!\d))(?=[^/.:_@-])/);
}

// clockTime is the time of day of an instant (a Date, or what Date takes), in this computer's zone: 15:04:05.
export function clockTime(instant, {milliseconds = false} = {}) {
  const date = new Date(instant);
  if (Number.isNaN(date.getTime())) return none;
  const text = [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => pad(part)).join(':');
  return milliseconds ? text + '.' + pad(date.getMilliseconds(), 3) : text;
}

// day is the date of an instant, in this computer's zone: 2026-01-02.
export function day(instant) {
  const date = new Date(instant);
  if (Number.isNaN(date.getTime())) return none;
  return [date.getFullYear(), pad(date.getMonth() + 1), pad(date.getDate())].join('-');
}

// when is the time of day, with the date if that is not the day of `now`.
export function when(instant, now = Date.now(), options) {
  const date = day(instant);
  return date === day(now) ? clockTime(instant, options) : date + ' ' + clockTime(instant, options);
}

// plural is "1 write", "2 writes".
export function plural(number, one, many = one + 's') {
  return count(number) + ' ' + (number === 1 ? one : many);
}

function twoUnits(seconds, great, greatName, small, smallName) {
  const first = Math.floor(seconds / great);
  const rest = Math.round((seconds - first * great) / small);
  return first + ' ' + greatName + (rest > 0 ? ' ' + rest + ' ' + smallName : '');
}

// trimmed formats at most so many decimals, without trailing zeros.
function trimmed(number, decimals) {
  const text = number.toFixed(decimals);
  return decimals > 0 ? text.replace(/\.?0+$/, '') : text;
}

function pad(number, digits = 2) {
  return String(number).padStart(digits, '0');
}

function isNumber(value) {
  return typeof value === 'number' && Number.isFinite(value);
}
