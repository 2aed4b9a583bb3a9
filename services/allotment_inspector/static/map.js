'use strict';
// The card map: pieces of one pod light up together, a card is selected, arrows go between cards.
const query = () => new URLSearchParams(location.search);
const by = key => $(`[data-key="${CSS.escape('c:' + key)}"]`);
for (const [on, off] of [['mouseover', 'mouseout'], ['focusin', 'focusout']]) {
  document.addEventListener(on, e => { const u = e.target.dataset?.uid; if (u) $$(`[data-uid="${CSS.escape(u)}"]`).forEach(x => x.classList.add('same')); });
  document.addEventListener(off, () => $$('.same').forEach(x => x.classList.remove('same')));
}
const make = (tag, text, name = '') => { const e = document.createElement(tag); e.textContent = text; e.className = name; return e; };

// Names reach the page as text only.
function pick(key) {
  const box = $('#picked'), asked = query(), card = key && by(key);
  $$('.card[aria-current]').forEach(c => c.removeAttribute('aria-current'));
  if (key) asked.set('card', key); else asked.delete('card');
  history.replaceState(null, '', location.pathname + (asked.size ? '?' + asked : ''));
  if (box) box.hidden = !card;
  $$('.cap').forEach((c, k) => { c.tabIndex = card ? (c.parentElement === card ? 0 : -1) : k ? -1 : 0; });
  if (!card) return;
  card.setAttribute('aria-current', 'true');
  if (!box) return;
  $('h2', box).textContent = key; $('.about', box).textContent = card.dataset.about;
  $('ol', box).replaceChildren(...$$('.seg', card).map(s => {
    const li = document.createElement('li'), a = make('a', s.dataset.pod, 'cut');
    a.href = s.href; a.title = s.dataset.pod; a.dataset.go = '';
    const state = { reserved: 'reserved, not bound yet', going: 'being deleted', perhaps: 'which card is unknown' }[s.dataset.phase];
    const since = s.dataset.since ? 'since ' + clock(+s.dataset.since).slice(0, 8) : '';
    li.append(a, make('span', s.dataset.amount), make('span', [since, state].filter(Boolean).join('; '), 'why'));
    return li;
  }));
  $('code', box).textContent = `allot blame ${quoted(key)}` + (live ? '' : ' --at ' + here);
}
document.addEventListener('click', e => {
  const cap = e.target.closest('[data-card]');
  if (!cap || e.ctrlKey || e.metaKey || !by(cap.dataset.card)) return;
  e.preventDefault(); pick(cap.dataset.card);
});
document.addEventListener('moment', () => pick(query().get('card')));
document.addEventListener('keydown', e => { if (e.key === 'Escape' && !e.target.matches('input')) pick(null); });
document.addEventListener('keydown', e => {
  const caps = $$('#map .cap'), k = caps.indexOf(e.target); if (k < 0) return;
  const me = caps[k].getBoundingClientRect(), row = up => {       // the nearest card of the next row
    const rest = caps.map(c => [c, c.getBoundingClientRect()]).filter(([, r]) => up ? r.top < me.top - 8 : r.top > me.top + 8);
    const y = (up ? Math.max : Math.min)(...rest.map(([, r]) => r.top));
    return rest.filter(([, r]) => Math.abs(r.top - y) < 8).sort((p, q) => Math.abs(p[1].left - me.left) - Math.abs(q[1].left - me.left))[0]?.[0];
  };
  const to = { ArrowLeft: () => caps[k - 1], ArrowRight: () => caps[k + 1], ArrowUp: () => row(true), ArrowDown: () => row(false), Home: () => caps[0], End: () => caps.at(-1) }[e.key]?.();
  if (to) { e.preventDefault(); caps[k].tabIndex = -1; to.tabIndex = 0; to.focus(); }
});

// The server filters, highlights and groups; what is asked for stays in the address.
const sift = $('#sift');
let typing = 0;
function ask() {
  const asked = query();
  for (const { name, value } of sift.elements) if (name) value ? asked.set(name, value) : asked.delete(name);
  history.replaceState(null, '', location.pathname + (asked.size ? '?' + asked : '') + location.hash);
  seek({ at: live ? null : here });
}
if (sift) {                               // only on the map, not on a node's page
  sift.oninput = () => { clearTimeout(typing); typing = setTimeout(ask, 150); };
  sift.onsubmit = e => { e.preventDefault(); ask(); };
}
pick(query().get('card'));
