// Scales and ticks. Pure.
//
//   linear(from, to, start, end) → (value) → position      logarithmic(from, to, start, end): from and to above 0
//   niceTicks(max, wanted) → [0, step, …], the last at or above max, with steps of 1, 2 or 5 times a power of ten
//   timeTicks(from, to, wanted) → {ticks: [milliseconds], step}, at whole units of time in this computer's zone
//   lateTicks(from, to) → [milliseconds] for a logarithmic axis of durations: 1 ms, 10 ms, 100 ms, 1 s, 10 s, 1 min, …

export function linear(from, to, start, end) {
  const factor = to === from ? 0 : (end - start) / (to - from);
  return (value) => start + (value - from) * factor;
}

export function logarithmic(from, to, start, end) {
  const scale = linear(Math.log(from), Math.log(to), start, end);
  return (value) => scale(Math.log(Math.min(to, Math.max(from, value))));
}

export function niceTicks(max, wanted = 4) {
  if (!(max > 0)) max = 1;
  const rough = max / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((each) => each * power >= rough * 0.999999) * power;
  const ticks = [];
  for (let at = 0; ; at++) {
    ticks.push(Number((at * step).toPrecision(12)));
    if (at * step >= max * 0.999999) return ticks;
  }
}

const second = 1000, minute = 60 * second, hour = 60 * minute, dayLong = 24 * hour;
const timeSteps = [1, 2, 5, 10, 15, 30].map((n) => n * second)
  .concat([1, 2, 5, 10, 15, 30].map((n) => n * minute), [1, 2, 3, 6, 12].map((n) => n * hour),
    [1, 2, 7, 14].map((n) => n * dayLong));

export function timeTicks(from, to, wanted = 6) {
  const step = timeSteps.find((each) => (to - from) / each <= wanted) ?? timeSteps.at(-1);
  // Days begin at midnight and hours at whole hours of this zone, which may differ from UTC by parts of an hour.
  const shift = new Date(from).getTimezoneOffset() * minute;
  const ticks = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) ticks.push(at);
  return {ticks, step};
}

const spans = [1, 10, 100, second, 10 * second, minute, 10 * minute, hour, 6 * hour, dayLong, 7 * dayLong,
  30 * dayLong];

export function lateTicks(from, to) {
  return spans.filter((span) => span >= from * 0.999 && span <= to * 1.001);
}
