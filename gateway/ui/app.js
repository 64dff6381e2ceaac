// The shell: who is signed in, navigation, the current page, the connection banner, the theme, and the updating of
// times.
//
// A page is a module pages/<name>.js that exports
//   title                            a text, or a function of params that returns one
//   mount(container, params, app)    fills the container. It may return {update(params)}, called when only the query
//                                    has changed. Without update, the page is mounted again.
// params is {name, query}: for '#/locks/jobs%2F42?tab=x' the name is 'jobs/42' (null if there is none) and the query
// {tab: 'x'}.
// app belongs to the page, and everything that it started ends with the page:
//   app.get(path, query), app.send(method, path, body)   as in api.js, aborted with the page: such an AbortError needs
//                                                        no handling, see app.run
//   app.open(path)                       the same, whose answer's body the page reads
//   app.run(async () => {…}, onError)    runs it; calls onError(error) if it fails while the page is still open
//   app.stream(spec)                     openStream of stream.js, with the banner; a new stream closes the old one
//   app.every(ms, fn)                    calls fn while the tab is visible
//   app.frame(fn, ms) → schedule()       schedule() has fn called once in the next frame, at most every ms
//   app.setQuery(query)                  puts the query into the address, without history and without update()
//   app.announce(text)                   announces a text to screen readers
//   app.onEnd(fn)                        calls fn when the page is left

import {account, loadAccount, may, mayAll, mayAny, onAccount, scopesByName, signOut} from './account.js';
import {address, get, isAborted, open, send} from './api.js';
import {tickTimes} from './clock.js';
import {noteFault, showConnection, tickConnection} from './connection.js';
import {fill, h, setText} from './dom.js';
import {button, errorMessage, loading, name} from './parts.js';
import {link, pages, parse} from './router.js';
import {openStream} from './stream.js';

const element = (id) => document.getElementById(id);
let shown = null; // {page, name, scope, update}
let visit = 0;

function newScope() {
  const abort = new AbortController();
  const endings = [];
  let stream = null, hasOverview = false;

  // judge notes why the page can't be current, or that it can: fault is a text or null. Where there is the overview's
  // stream, that alone says so, since some answers come from the gateway's memory.
  const judge = (fault) => hasOverview || abort.signal.aborted || noteFault(fault);
  return {
    async get(path, query) {
      try {
        const answer = await get(path, query, {signal: abort.signal});
        judge(null);
        return answer;
      } catch (error) {
        if (error.code === 'unavailable') judge(error.message);
        throw error;
      }
    },
    open: (path) => open(address(path), {signal: abort.signal}),
    send: (method, path, body) => send(method, path, body, {signal: abort.signal}),
    run(work, onError = reportError) {
      Promise.resolve().then(work).catch((error) => {
        if (!abort.signal.aborted && !isAborted(error)) onError(error);
      });
    },
    stream(spec) {
      stream?.close();
      const {overview} = spec.on;
      hasOverview = Boolean(overview);
      const on = hasOverview ? {...spec.on, overview(data) {
        noteFault(data.point === undefined ? 'The gateway can’t read the database.' : null);
        overview(data);
      }} : spec.on;
      stream = openStream({...spec, on, status(status) {
        if (abort.signal.aborted) return;
        if (status.state === 'live') judge(null);
        showConnection(status, stream);
        spec.status?.(status);
      }});
      return stream;
    },
    every(ms, work) {
      const timer = setInterval(() => document.hidden || work(), ms);
      endings.push(() => clearInterval(timer));
    },
    frame(work, ms = 0) {
      let pending = false, last = -Infinity;
      const paint = () => {
        pending = false;
        last = performance.now();
        if (!abort.signal.aborted) work();
      };
      return () => {
        if (pending) return;
        pending = true;
        setTimeout(() => requestAnimationFrame(paint), Math.max(0, last + ms - performance.now()));
      };
    },
    setQuery(query) {
      const at = parse(location.hash);
      history.replaceState(null, '', link(at.page, at.name, query));
    },
    announce: (text) => setText(element('announcer'), text),
    onEnd: (work) => endings.push(work),
    end() {
      abort.abort();
      stream?.close();
      for (const work of endings.reverse()) work();
    },
  };
}

// mayShow says whether the caller may see a page.
function mayShow({scope, everywhere, judged, name: of = null}) {
  if (!scope) return true;
  if (judged && of !== null) return may(scope, of);
  return everywhere ? mayAll(scope) : mayAny(scope);
}

// destination is the page of the address, or what the caller sees in its place. At the empty address that is the first
// page that it may see.
function destination() {
  if (account() === null) return {page: 'sign-in', module: 'sign-in', name: null, query: {ended: wasSignedIn}};
  const target = parse(location.hash);
  const page = {...pages.find((each) => each.page === target?.page), name: target?.name};
  if (target === null || mayShow(page)) return target;
  const first = target.page === '' && pages.find((each) => each.label && mayShow(each));
  return first ? {...first, name: null, query: {}} : {...page, page: 'not-allowed', module: 'not-allowed'};
}

// placeholder is shown while a page is loaded, which may take a while under load.
function placeholder(target) {
  const {label = 'fencegate'} = pages.find((each) => each.page === target?.page) ?? {};
  return h('div', {class: 'page'}, h('h1', null, target?.name ?? label), loading());
}

async function navigate() {
  const target = destination();
  if (shown && target && shown.page === target.page && shown.name === target.name && shown.update) {
    shown.update(target);
    return;
  }
  const number = ++visit;
  const first = shown === null;
  shown?.scope.end();
  shown = {page: target?.page, name: target?.name, scope: newScope()};
  const scope = shown.scope;
  showConnection({state: 'idle'});
  markNavigation(target);
  const container = placeholder(target);
  const main = fill(element('main'), container);
  let title = 'Not found';
  try {
    if (target === null) throw new Error('There is no page at this address.');
    const module = await import(`./pages/${target.module}.js`);
    if (number !== visit) return;
    fill(container);
    title = typeof module.title === 'function' ? module.title(target) : module.title;
    shown.update = module.mount(container, target, scope)?.update;
  } catch (error) {
    if (number !== visit) return;
    fill(container, h('h1', null, target === null ? 'Not found' : 'This page can’t be shown'),
      errorMessage(error, target === null ? null : () => navigate()), h('p', null, h('a', {href: '#/'}, 'Overview')));
    if (target !== null) console.error(error);
  }
  document.title = title + ' · fencegate';
  if (!first && !main.contains(document.activeElement)) main.focus({preventScroll: true});
  window.scrollTo(0, 0);
}

function markNavigation(target) {
  const nav = element('nav');
  for (const anchor of nav.children) {
    if (target !== null && anchor.dataset.page === target.page) {
      anchor.setAttribute('aria-current', 'page');
    } else anchor.removeAttribute('aria-current');
  }
}

let wasSignedIn = false;

// showAccount shows what this caller may see: its pages, and its name, unless the gateway asks for no credentials.
function showAccount() {
  const caller = account();
  const known = caller !== null && caller.kind !== 'anonymous';
  fill(element('nav'), caller !== null && pages.filter((each) => each.label && mayShow(each))
    .map((each) => h('a', {href: link(each.page), data: {page: each.page}}, each.label)));
  element('metrics').hidden = !mayAll('observe');
  const grants = (caller?.grants ?? []).length === 0 ? 'nothing' : scopesByName(caller.grants)
    .map(({name: of, scopes}) => `${scopes.join(', ')} on ${of === '' ? 'every name' : of}`).join('; ');
  const who = known && name(caller.principal);
  if (who) who.title = `${caller.principal} may do: ${grants}`;
  fill(element('account'), known && [who, button('Sign out', leave, {class: 'quiet'})]);
}

function leave() {
  wasSignedIn = false;
  signOut().catch((error) => showConnection({state: 'refused', error}));
}

function tick() {
  if (document.hidden) return;
  tickTimes();
  tickConnection();
}

function showTheme() {
  const theme = window.fencegateTheme.get();
  const button = element('theme');
  const names = {auto: 'Auto', light: 'Light', dark: 'Dark'};
  fill(button, h('span', {class: 'theme-mark', 'aria-hidden': 'true'}), names[theme]);
  button.setAttribute('aria-label', `Colours: ${names[theme]}. Change.`);
}

element('theme').addEventListener('click', () => {
  window.fencegateTheme.next();
  showTheme();
});
showTheme();
// Fragments are addresses of pages; the skip link must not change it.
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  element('main').focus();
});
window.addEventListener('hashchange', navigate);
setInterval(tick, 1000);
onAccount(() => {
  showAccount();
  navigate();
  wasSignedIn = account() !== null;
});
fill(element('main'), placeholder(parse(location.hash)));
loadAccount();
