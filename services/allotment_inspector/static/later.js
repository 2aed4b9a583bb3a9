'use strict';
// Parts that take a while are asked for after the page is there: `data-later` says where.
// While the log goes on they are asked for again, at most every few seconds, and stay until then.
{
  const PAUSE = 4000;
  let busy = false, again = 0;
  async function load() {
    const part = document.querySelector('[data-later]');
    if (!part || busy) return;
    busy = true;
    part.setAttribute('aria-busy', 'true');
    try {
      const query = new URLSearchParams({ parts: 1 }), at = new URLSearchParams(location.search).get('at');
      if (at) query.set('at', at);
      const answer = await fetch(part.dataset.later.split('?')[0] + '?' + query, { headers: { Accept: 'application/json' } });
      const said = await answer.json(), found = said.parts?.[part.dataset.key];
      if (found) {
        const box = document.createElement('template');
        box.innerHTML = found[1];                     // drawn and escaped by the server, as every part
        part.replaceChildren(...box.content.firstElementChild.childNodes);
      }
    } catch { /* the page says itself when no answer from the inspector */ } finally {
      busy = false;
      part.removeAttribute('aria-busy');
    }
  }
  document.addEventListener('moment', () => {
    clearTimeout(again);
    again = setTimeout(load, document.body.classList.contains('live-now') ? PAUSE : 150);
  });
  load();
}
