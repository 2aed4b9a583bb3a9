'use strict';
// One cell a card: each .strip has one digit a card (0 empty to 5 full, x unhealthy, - gone), drawn as
// one SVG path per level, so that thousands of cards are a few elements, follow the theme and print.
const CELL = 7, PX = 8, PY = 5, SVG = 'http://www.w3.org/2000/svg';
const WORDS = { 0: 'idle', 1: 'up to 25%', 2: 'up to 50%', 3: 'up to 75%', 4: 'over 75%', 5: 'full', x: 'unhealthy', '-': 'gone' };
const LEVEL = { '-': 'hg' };
const parsed = new WeakMap();
function pool(svg) {                       // names travel without what they share with the one before
  if (!parsed.has(svg)) {
    let before = '';
    const names = svg.dataset.names.split(' ').map(n => { const k = n.indexOf(':'); return before = before.slice(0, +n.slice(0, k)) + n.slice(k + 1); });
    parsed.set(svg, { svg, names, per: +svg.dataset.per, lv: svg.dataset.levels, lit: svg.dataset.lit, cur: -1 });
  }
  return parsed.get(svg);
}
const pools = () => $$('.strip').map(pool);
const rowOf = p => p.per * PY + 4;
const cells = (p, i) => [...p.lv.slice(i * p.per, (i + 1) * p.per)].filter(c => c !== ' ');
const words = (p, i) => `${p.names[i]}: ` + cells(p, i).map(c => WORDS[c]).join(', ');
function paint(p) {
  const wide = p.svg.clientWidth || 900;
  p.cols = Math.max(1, Math.floor(wide / PX));
  const d = {};
  for (let k = 0; k < p.lv.length; k++) {
    const c = p.lv[k]; if (c === ' ') continue;
    const i = Math.floor(k / p.per), x = i % p.cols * PX, y = Math.floor(i / p.cols) * rowOf(p) + k % p.per * PY;
    // what is unhealthy has a shape of its own, a cross; what is gone is a line
    const key = c + (p.lit?.[k] === '1' ? '!' : '');
    d[key] = (d[key] || '') + (c === 'x' ? `M${x - 1} ${y - 1}h9v6h-9zl9 6m0-6l-9 6` : c === '-' ? `M${x} ${y + 2}h7` : `M${x} ${y}h7v4h-7z`);
  }
  const high = Math.ceil(p.names.length / p.cols) * rowOf(p);
  p.svg.setAttribute('height', high); p.svg.setAttribute('viewBox', `0 0 ${wide} ${high}`);
  p.svg.replaceChildren(...Object.keys(d).sort().map(c => {
    const e = document.createElementNS(SVG, 'path');
    e.setAttribute('class', (LEVEL[c[0]] || 'h' + c[0]) + (c[1] ? ' lit' : '')); e.setAttribute('d', d[c]); return e;
  }));
  if (p.cur >= 0) frame(p, p.cur);
}
function frame(p, i, name = 'cur') {
  $('.' + name, p.svg)?.remove();
  if (i < 0) return;
  const r = document.createElementNS(SVG, 'rect');
  const at = { class: name, x: i % p.cols * PX - 2, y: Math.floor(i / p.cols) * rowOf(p) - 2, width: CELL + 4, height: p.per * PY + 3 };
  for (const k in at) r.setAttribute(k, at[k]);
  p.svg.append(r);
}
function selectNode(p, i) {
  if (i < 0 || i >= p.names.length) return;
  pools().forEach(o => { if (o !== p && o.cur >= 0) { o.cur = -1; frame(o, -1); } });
  p.cur = i; frame(p, i);
  const box = $('#picked'), name = p.names[i];
  box.hidden = false; $('h2', box).replaceChildren(Object.assign(document.createElement('a'), { textContent: name, href: nodePath(name) }));
  $('.about', box).textContent = `${cells(p, i).length} cards`;
  $('ol', box).replaceChildren(...cells(p, i).map((c, k) => {
    const li = document.createElement('li'), a = make('span', `card ${k}`, 'id'), s = document.createElement('span');
    s.append(make('i', '', 'sw ' + (LEVEL[c] || 'h' + c)), WORDS[c]); li.append(a, s); return li;
  }));
  $('code', box).textContent = `allot ledger ${quoted(name)}` + (live ? '' : ' --at ' + here);
  p.svg.setAttribute('aria-label', words(p, i));
}
const nodePath = name => '/nodes/' + encodeURIComponent(name) + (live ? '' : '?at=' + here);
const hit = (p, e) => { const b = p.svg.getBoundingClientRect(), x = Math.floor((e.clientX - b.left) / PX); return x < p.cols ? Math.floor((e.clientY - b.top) / rowOf(p)) * p.cols + x : -1; };
document.addEventListener('click', e => { const svg = e.target.closest?.('.strip'); if (svg) selectNode(pool(svg), hit(pool(svg), e)); });
document.addEventListener('dblclick', e => { const svg = e.target.closest?.('.strip'), i = svg ? hit(pool(svg), e) : -1; if (pool(svg)?.names[i]) location.href = nodePath(pool(svg).names[i]); });
document.addEventListener('mousemove', e => { const svg = e.target.closest?.('.strip'); if (svg) { const p = pool(svg), i = hit(p, e); svg.setAttribute('title', p.names[i] ? words(p, i) : ''); } });
document.addEventListener('keydown', e => {
  if (!e.target.matches('.strip')) return;
  const p = pool(e.target), by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -p.cols, ArrowDown: p.cols, Home: -p.cur, End: p.names.length - 1 - p.cur }[e.key];
  if (by !== undefined) { e.preventDefault(); selectNode(p, Math.max(0, Math.min(p.cur + (p.cur < 0 ? 1 : by), p.names.length - 1))); }
  if (e.key === 'Enter' && p.cur >= 0) location.href = nodePath(p.names[p.cur]);
});
// What a step changed: the nodes whose digits differ from those before.
let before = new Map(pools().map(p => [p.svg.closest('[data-key]').dataset.key, p]));
document.addEventListener('moment', () => {
  for (const p of pools()) {
    const key = p.svg.closest('[data-key]').dataset.key, old = before.get(key);
    if (old?.svg !== p.svg) { p.cur = old && old.cur >= 0 ? p.names.indexOf(old.names[old.cur]) : -1; paint(p); }
    $$('.step', p.svg).forEach(r => r.remove());
    if (old && old.svg !== p.svg && !live) {
      const was = new Map(old.names.map((n, i) => [n, cells(old, i).join('')]));
      p.names.forEach((n, i) => { if (was.get(n) !== cells(p, i).join('')) { const r = document.createElementNS(SVG, 'rect'); r.setAttribute('class', 'step'); for (const [k, v] of Object.entries({ x: i % p.cols * PX - 2, y: Math.floor(i / p.cols) * rowOf(p) - 2, width: CELL + 4, height: p.per * PY + 3 })) r.setAttribute(k, v); p.svg.append(r); } });
    }
    before.set(key, p);
  }
});
new ResizeObserver(() => pools().forEach(paint)).observe($('#map').parentElement);
pools().forEach(paint);
