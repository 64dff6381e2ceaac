// A reader of server-sent events, as the HTML standard describes them. Pure.
//
//   const feed = eventReader();
//   feed(text) → the events that are complete: [{event, data, id}]; id is null if there was none. data is null for an
//                id alone, which is no event, but from which a stream can be resumed.
//
// The page reads streams by fetch and not by EventSource. So it sees the status and the problem of a failed request,
// sees the keep-alive comments of an idle stream, and chooses when to reconnect.

export function eventReader() {
  let rest = '';
  let skipNewline = false; // the last text ended with \r: a \n after it belongs to it
  let event = '', data = [], id = null;

  function line(text, events) {
    if (text === '') {
      if (data.length > 0) events.push({event: event || 'message', data: data.join('\n'), id});
      else if (id !== null) events.push({event: '', data: null, id});
      event = '';
      data = [];
      id = null;
      return;
    }
    const colon = text.indexOf(':');
    const field = colon < 0 ? text : text.slice(0, colon);
    const value = colon < 0 ? '' : text.slice(colon + (text[colon + 1] === ' ' ? 2 : 1));
    if (field === 'event') event = value;
    else if (field === 'data') data.push(value);
    else if (field === 'id' && !value.includes('\0')) id = value;
  }

  return function feed(text) {
    const events = [];
    if (skipNewline && text.startsWith('\n')) text = text.slice(1);
    if (text !== '') skipNewline = false;
    rest += text;
    const lines = rest.split(/\r\n|\n|\r/);
    skipNewline = rest.endsWith('\r');
    rest = lines.pop();
    for (const each of lines) line(each, events);
    return events;
  };
}

// backoff returns the pause before the attempt-th reconnect (the first is 0), in ms: a quarter of a second, doubled up
// to ten seconds. random (0 to 1) spreads half of it, so that not all pages reconnect to a gateway at once.
export function backoff(attempt, random) {
  const greatest = Math.min(10_000, 250 * 2 ** Math.min(attempt, 10));
  return Math.round(greatest / 2 + (greatest / 2) * random);
}
