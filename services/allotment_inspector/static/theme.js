'use strict';
// The chosen theme, before anything is drawn: auto, light, dark. ?theme= shows one without keeping it.
{
  const root = document.documentElement, named = new URLSearchParams(location.search).get('theme');
  const kept = () => { try { return localStorage.getItem('theme'); } catch { return null; } };
  const is = t => t === 'light' || t === 'dark';
  const show = t => {
    if (is(t)) root.dataset.theme = t; else delete root.dataset.theme;
    const button = document.getElementById('theme');
    if (button) button.textContent = '◐ ' + (is(t) ? t : 'auto');
  };
  show(named || kept());
  document.addEventListener('DOMContentLoaded', () => {
    show(named || kept());
    const button = document.getElementById('theme');
    if (button) button.onclick = () => {
      const next = { undefined: 'light', light: 'dark', dark: '' }[root.dataset.theme];
      try { localStorage.setItem('theme', next); } catch { /* a private window */ }
      show(next);
    };
  });
}
