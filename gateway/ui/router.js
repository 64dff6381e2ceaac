// Addresses of pages: fragments that can be linked, including their filters. Pure.
//
//   '#/'                              the overview
//   '#/rejections?code=token_stale'   a page with a query
//   '#/locks/jobs%2F42'               a page of one thing: the lock jobs/42 (a raw / means the same)
//
//   link(page, name, query) → text    link('locks', 'jobs/42'), link('rejections', null, {owner_id: 'w'})
//   parse(fragment) → {page, name, query}, or null if there is no such page; name is null or a text,
//                                     query an object of texts
//
// To add a page, add a module pages/<module>.js and a row in `pages`. `module` is the file, `label` the text in the
// navigation (none: not listed), `one` the module of a page with a name. A caller sees the page with the scope `scope`
// (none: always): on all names if `everywhere`, otherwise on some name, or on that of the page if it is `judged`.

export const pages = [
  {page: '', module: 'overview', label: 'Overview', scope: 'observe', everywhere: true},
  {page: 'rejections', module: 'rejections', label: 'Rejections', scope: 'observe'},
  {page: 'locks', module: 'locks', one: 'lock', label: 'Locks', scope: 'observe', judged: true},
  {page: 'owners', one: 'owner', scope: 'observe'},
  {page: 'sessions', module: 'sessions', label: 'Sessions', scope: 'observe', everywhere: true},
  {page: 'tables', module: 'tables', label: 'Tables', scope: 'observe', everywhere: true},
  {page: 'policies', module: 'policies', label: 'Policies', scope: 'admin'},
  {page: 'keys', module: 'keys', label: 'Keys', scope: 'admin', everywhere: true},
  {page: 'audit', module: 'audit', label: 'Audit', scope: 'admin'},
  {page: 'api', module: 'api', one: 'api'},
];

export function parse(fragment) {
  const [path, ...rest] = fragment.replace(/^#?\/?/, '').split('?');
  const slash = path.indexOf('/');
  const page = slash < 0 ? path : path.slice(0, slash);
  const raw = slash < 0 ? '' : path.slice(slash + 1);
  const known = pages.find((each) => each.page === page);
  if (!known || !(raw === '' ? known.module : known.one)) return null;
  let name = null;
  try {
    name = raw === '' ? null : decodeURIComponent(raw);
  } catch {
    return null; // a % that escapes nothing
  }
  const query = Object.fromEntries(new URLSearchParams(rest.join('?')));
  return {page, name, query, module: name === null ? known.module : known.one};
}

export function link(page, name = null, query = {}) {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== '' && value !== null && value !== undefined && value !== false) search.append(key, value);
  }
  const text = search.toString();
  return '#/' + page + (name === null ? '' : '/' + encodeURIComponent(name)) + (text === '' ? '' : '?' + text);
}
