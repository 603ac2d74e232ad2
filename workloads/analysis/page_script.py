"""Holds what the page brings for the browser: its style, and the script that hides kinds and zooms timelines."""

STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }
svg { width: 100%; height: auto; font-size: 12px; fill: currentColor; } svg svg { overflow: hidden; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { text-align: right; padding: .15rem .7rem .15rem 0; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; } .scroll { overflow-x: auto; }
label { margin-right: 1rem; white-space: nowrap; } .swatch { display: inline-block; width: .8em; height: .8em; }
button { margin-right: .4rem; } .off { display: none; }
"""
SCRIPT = """
const root = document.documentElement;
for (const box of document.querySelectorAll('input[data-kind]')) {
  box.addEventListener('change', () => {
    const drawn = document.querySelectorAll('.k' + box.dataset.kind);
    for (const each of drawn) each.classList.toggle('off', !box.checked);
  });
}
for (const view of document.querySelectorAll('svg.zoom')) {
  const [, , wide, tall] = view.getAttribute('viewBox').split(' ').map(Number);
  let x = 0, shown = wide;
  const draw = () => view.setAttribute('viewBox', [x, 0, shown, tall].join(' '));
  const zoom = (factor, at) => {
    const next = Math.min(wide, Math.max(wide / 200, shown * factor));
    x = Math.min(wide - next, Math.max(0, x + (shown - next) * at)); shown = next; draw();
  };
  const move = (by) => { x = Math.min(wide - shown, Math.max(0, x + by * shown)); draw(); };
  const actions = {
    '+': () => zoom(0.5, 0.5), '\\u2212': () => zoom(2, 0.5), '\\u2190': () => move(-0.5),
    '\\u2192': () => move(0.5), 'all': () => { x = 0; shown = wide; draw(); },
  };
  const bar = document.createElement('p');
  for (const name of Object.keys(actions)) {
    const button = document.createElement('button');
    button.textContent = name; button.addEventListener('click', actions[name]); bar.append(button);
  }
  view.parentNode.before(bar);
  view.addEventListener('dblclick', (event) => {
    const box = view.getBoundingClientRect();
    zoom(0.5, (event.clientX - box.left) / box.width);
  });
}
root.dataset.ready = document.querySelectorAll('svg path, svg rect, svg circle, svg polyline').length;
"""
