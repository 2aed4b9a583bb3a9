'use strict';
// On every page: the moment, the parts that differ between two of them, live updates, keys.
// The server draws everything; here parts are swapped by data-key where their digest data-v differs.
const $ = (s, r = document) => r.querySelector(s), $$ = (s, r = document) => [...r.querySelectorAll(s)];
const range = $('#at'), zone = +range.dataset.zone * 60000;
const clock = ms => new Date(ms + zone).toISOString().slice(11, 23);
// A word of a command line, as a shell reads it: shlex.quote.
const quoted = word => /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
// Times are drawn by the server, in the zone that this cookie names: reload once when it is another.
const ahead = -new Date().getTimezoneOffset(), kept = `allotment_zone=${ahead}`;
if (!document.cookie.split('; ').includes(kept)) {
  document.cookie = `${kept}; path=/; max-age=31536000; samesite=strict`;
  if (document.cookie.split('; ').includes(kept) && ahead * 60000 !== zone) location.reload();
}
let here = +range.dataset.seq, ms = +range.value, nowMs = +range.dataset.now;
let live = document.body.classList.contains('live-now');
let wanted = null, busy = false;              // one question at a time; while it runs the last wish counts

// -- swapping
function swap(parts, outline) {
  const changed = [];
  for (const [key, [v, html]] of Object.entries(parts)) {
    const old = $(`[data-key="${CSS.escape(key)}"]`);
    if (!old || old.dataset.v === v) continue;
    const focus = old.contains(document.activeElement) && document.activeElement;
    const at = focus && $$('a, button, input', old).indexOf(focus);
    old.outerHTML = html;
    const fresh = $(`[data-key="${CSS.escape(key)}"]`);
    if (focus) ($$('a, button, input', fresh)[at] || fresh).focus?.();   // a step keeps the keyboard's place
    changed.push(fresh);
  }
  $$('.changed').forEach(e => e.classList.remove('changed'));
  if (outline) changed.filter(e => !e.matches('.marks, .tools, #map')).forEach(e => e.classList.add('changed'));
}
// As the server words it: duration_text.
function age(span) {
  const s = Math.floor(Math.max(span, 0) / 1000), two = n => String(n).padStart(2, '0');
  if (span < 1000) return Math.max(span, 0) + ' ms';
  if (span < 10000) return `${s}.${Math.floor(span % 1000 / 100)} s`;
  if (s < 60) return s + 's';
  if (s < 3600) return `${Math.floor(s / 60)}m${two(s % 60)}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${two(Math.floor(s % 3600 / 60))}m`;
  return `${Math.floor(s / 86400)}d${two(Math.floor(s % 86400 / 3600))}h`;
}
const ages = () => $$('time.age').forEach(t => { t.textContent = age(nowMs - t.dataset.ms); });

function show(said, outline) {
  here = said.seq; ms = said.ms; nowMs = said.nowMs; live = said.isNow;
  swap(said.parts, outline);
  range.min = said.firstMs; range.max = said.lastMs; range.value = ms;
  range.dataset.seq = here; range.dataset.head = said.head;
  range.setAttribute('aria-valuetext', `record ${here}, ${said.clock}, ${said.text}`);
  $('#when').textContent = said.clock; $('#seq').textContent = 'seq ' + here;
  $('#what').textContent = $('#what').title = said.text;
  $('.upto').style.setProperty('--x', said.x); $('#past').setAttribute('d', $('.density').getAttribute('d'));
  sortAll(); mode(); ages(); headline(said.text, said.sinceMs);
  document.dispatchEvent(new CustomEvent('moment', { detail: said }));
}
function mode() {
  document.body.classList.toggle('live-now', live);
  $('#then').hidden = live; $('#then').textContent = `Past state: ${$('#when').textContent.slice(0, 8)}`;
  $('#live').setAttribute('aria-pressed', live); $('#live').textContent = live ? 'Live' : 'Go live';
  $$('.mark').forEach(m => m.classList.toggle('future', +m.dataset.at > here));
  const query = new URLSearchParams(location.search);
  live ? query.delete('at') : query.set('at', here);
  history.replaceState(null, '', location.pathname + (query.size ? '?' + query : '') + location.hash);
  $$('input.at').forEach(i => { i.disabled = live; i.value = here; });   // forms ask at this moment, too
  $$('code .at').forEach(e => { e.textContent = live ? '' : ' --at ' + here; });
  $$('a[data-go]').forEach(a => {                                  // the moment goes along
    const [path, q] = a.getAttribute('href').split('?'), s = new URLSearchParams(q);
    live ? s.delete('at') : s.set('at', here);
    query.get('window') ? s.set('window', query.get('window')) : s.delete('window');
    const to = path + (s.size ? '?' + s : '');
    if (to !== a.getAttribute('href')) a.setAttribute('href', to);
  });
}

// -- tables: a click on a header sorts its rows, and they stay sorted over steps
const sorted = {};                             // of each table, by its label: column and direction
const UNITS = { ms: .001, s: 1, MiB: 1, GiB: 1024, TiB: 1048576 };
function worth(cell) {                         // what a cell is sorted by: a number if it begins with one
  const age = $('time.age', cell), text = cell.textContent.trim();
  if (age) return -age.dataset.ms;
  const [, number, unit] = text.match(/^(-?[\d,]+(?:\.\d+)?)\s*([a-zA-Z%]*)$/) || [];
  return number === undefined ? text : +number.replaceAll(',', '') * (UNITS[unit] ?? 1);
}
function sortAll() {
  $$('main table').forEach(table => {
    const label = table.parentElement.getAttribute('aria-label'), heads = $$('thead th', table).filter(th => !th.querySelector('.sr'));
    if ($$('tbody tr', table).length < 2) return;
    heads.forEach(th => { th.tabIndex = 0; th.classList.add('sort'); });
    const by = sorted[label];
    if (!by) return;
    heads.forEach(th => th.removeAttribute('aria-sort'));
    $$('thead th', table)[by.at].setAttribute('aria-sort', by.up ? 'ascending' : 'descending');
    const rows = $$('tbody tr', table).map(tr => [worth(tr.cells[by.at]), tr]);
    rows.sort(([a], [b]) => (by.up ? 1 : -1) * (typeof a === 'number' && typeof b === 'number' ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true })));
    $('tbody', table).append(...rows.map(([, tr]) => tr));
  });
}
function sortBy(th) {
  const label = th.closest('table').parentElement.getAttribute('aria-label'), at = th.cellIndex;
  sorted[label] = { at, up: sorted[label]?.at === at ? !sorted[label].up : !th.matches('.n') };
  sortAll();
}
document.addEventListener('click', e => { const th = e.target.closest?.('th.sort'); if (th) sortBy(th); });
document.addEventListener('keydown', e => { if (e.key === 'Enter' && e.target.matches?.('th.sort')) sortBy(e.target); });

// -- asking
async function seek(wish) {                    // {at} a moment, null for the newest; {by} steps; {go} a marked record
  if (wish.by && wanted?.by) wanted.by += wish.by;   // presses while an answer is under way all count
  else wanted = wish;
  if (busy) return;
  busy = true;
  try {
    while (wanted) {
      const ask = wanted, query = new URLSearchParams(location.search);
      wanted = null;
      query.delete('at'); query.set('parts', 1);
      if (ask.by) query.set('at', Math.max(0, Math.min(here + ask.by, +range.dataset.head)));
      else if (ask.go) { query.set('at', here); query.set('go', ask.go); }
      else if (ask.at !== null) query.set('at', ask.at);
      const answer = await fetch(location.pathname + '?' + query, { headers: { Accept: 'application/json' } });
      const said = await answer.json();
      if (said.parts) show(said, Boolean(ask.by || ask.go)); else trouble(said.message);
      if (answer.status === 401) location.reload();
    }
  } catch { trouble('no answer from the inspector'); } finally { busy = false; }
}
const back = () => seek({ by: -1 }), next = () => seek({ by: 1 });
const follow = () => seek({ at: null }), goLive = () => live ? seek({ at: here }) : follow();

range.oninput = () => seek({ at: new Date(+range.value).toISOString() });
range.onkeydown = e => {
  const by = { ArrowLeft: back, ArrowDown: back, ArrowRight: next, ArrowUp: next }[e.key];
  if (by) { e.preventDefault(); by(); }
};
$('#window').onchange = e => {
  const query = new URLSearchParams(location.search);
  e.target.value ? query.set('window', e.target.value) : query.delete('window');
  history.replaceState(null, '', location.pathname + (query.size ? '?' + query : '') + location.hash);
  seek({ at: live ? null : here });
};
$('#help-button').onclick = () => $('#help').showModal();
$('#back').onclick = back; $('#next').onclick = next; $('#live').onclick = goLive;
document.addEventListener('click', e => {
  const mark = e.target.closest?.('.mark');
  if (mark && !e.ctrlKey && !e.metaKey) { e.preventDefault(); seek({ at: +mark.dataset.at }); }
});
document.addEventListener('keydown', e => {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.target.matches('input:not([type=range]), select, textarea')) { if (e.key === 'Escape') e.target.blur(); return; }
  const act = { '[': back, ']': next, '{': () => seek({ go: '-mark' }), '}': () => seek({ go: 'mark' }),
    l: follow, '/': () => $('#find').focus(), '?': () => $('#help').showModal() }[e.key];
  if (act) { e.preventDefault(); act(); }
});

// -- what is wrong heads the page; without news (since sinceMs) ages stand still
let said = { text: $('#headline').textContent, sinceMs: document.body.matches('.silent') ? nowMs : null };
function headline(text, sinceMs) {
  said = { text, sinceMs };
  const box = $('#headline'), silent = Boolean(live && sinceMs);
  box.hidden = !(text && live); box.textContent = text;
  document.body.classList.toggle('silent', silent);
  if (silent) { nowMs = sinceMs; ages(); }
}

// -- live: the stream says how far the log has come; what is drawn is asked for as above
function trouble(text) { const t = $('#trouble'); t.textContent = text ? '⚠ ' + text : ''; t.hidden = !text; }
let heardMs = Date.now();                     // when the stream last brought something
let told = +range.dataset.head, toldUnread = null, later = 0, soon = 0, took = 0;
async function keepUp() {                     // a page that takes long to draw is drawn less often
  soon = 0;
  if (!live) return;
  const began = performance.now();
  await follow();
  took = performance.now() - began;
}
const stream = new EventSource(document.body.dataset.stream);
stream.onmessage = m => {
  const { head, unread, trouble: why, headline: text, sinceMs } = JSON.parse(m.data);
  heardMs = Date.now();
  trouble(why); headline(text, sinceMs);
  const isRead = toldUnread !== null && unread !== toldUnread;
  toldUnread = unread;
  if (head === told && !isRead) return;
  told = head; range.dataset.head = head;
  if (live) soon = soon || setTimeout(keepUp, 2 * took);
  else if (!later) later = setTimeout(() => { later = 0; if (!live) seek({ at: here }); }, 5000);   // the slider grows
};
stream.onerror = () => headline(`No news from the inspector since ${clock(heardMs).slice(0, 8)}; this is the state of then`, heardMs);
sortAll();
setInterval(() => { if (live && !document.body.matches('.silent')) { nowMs += 1000; ages(); } }, 1000);
mode();
