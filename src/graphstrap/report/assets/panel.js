// Everything around the map: toolbar, legend, search, details of a node, pointer and keys. Text enters as text only.

const MAX_MATCHES = 12;
const MAX_LISTED = 30;
const NUM_FIRST = 6;

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (name === 'colour') made.style.background = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function shownNumber(value) {
  if (Number.isNaN(value)) return '–';
  if (Number.isInteger(value)) return value.toLocaleString('en');
  return String(Number(value.toPrecision(4)));
}

function attributesOf(map, node) {
  const rows = [];
  for (const column of map.header.columns) {
    const value = map.arrays[column.array][node];
    if (column.kind === 'number') rows.push([column.title, shownNumber(value)]);
    else if (value >= 0) rows.push([column.title, map.arrays[`${column.array}:names`][value]]);
  }
  if (map.header.traits) rows.push(['features', traitsOf(map, node).join(', ')]);
  return rows.filter(([, text]) => text !== '');
}

function traitsOf(map, node) {
  const width = map.arrays.traits.length / map.count;
  const columns = Array.from(map.arrays.traits.subarray(node * width, (node + 1) * width));
  return columns.filter((column) => column >= 0).map((column) => map.arrays.trait_names[column]);
}

// ---- node and legend ------------------------------------------------------------------------------------------------

function showNode(map) {
  const panel = document.getElementById('node');
  panel.hidden = map.selected < 0;
  panel.replaceChildren();
  if (map.selected < 0) return;
  const facts = attributesOf(map, map.selected);
  const close = element('button', { type: 'button', class: 'close', 'aria-label': 'Clear the selection', onclick: () => select(map, -1) }, '×');
  panel.append(element('div', { class: 'top' }, element('h3', {}, map.ids[map.selected]), close), factList(facts.slice(0, NUM_FIRST)));
  panel.append(element('h4', {}, element('i', { class: 'stroke near' }), 'Nearest by embedding'), nodeList(map, nearestOf(map, map.selected)));
  const linked = map.linked.length;
  panel.append(element('h4', {}, element('i', { class: 'stroke' }), `Linked in the graph (${linked.toLocaleString('en')})`));
  panel.append(nodeList(map, map.linked.slice(0, MAX_LISTED).map((node) => [node, null])));
  if (linked > MAX_LISTED) panel.append(element('p', { class: 'note' }, `and ${linked - MAX_LISTED} more`));
  if (facts.length > NUM_FIRST) panel.append(element('h4', {}, 'More columns'), factList(facts.slice(NUM_FIRST)));
}

function factList(facts) {
  const list = element('dl', { class: 'attributes' });
  for (const [name, text] of facts) list.append(element('dt', {}, name), element('dd', {}, text));
  return list;
}

function nodeList(map, entries) {
  const list = element('ul', { class: 'nodes' });
  for (const [node, similarity] of entries) {
    const go = () => { select(map, node); goTo(map, node); };
    const button = element('button', { type: 'button', onclick: go, title: map.ids[node] },
      element('span', { class: 'dot', colour: css(nodeColour(map.column, node)) }),
      element('span', { class: 'name' }, map.ids[node]));
    if (similarity !== null) button.append(element('span', { class: 'figure' }, similarity.toFixed(2)));
    list.append(element('li', {}, button));
  }
  return list;
}

function showLegend(map) {
  const legend = document.getElementById('legend');
  legend.replaceChildren(element('h3', {}, map.column.title));
  legend.append(map.column.kind === 'category' ? categoryLegend(map) : numberLegend(map));
}

function categoryLegend(map) {
  const { order, counts, colours, names } = map.column;
  const list = element('ul', { class: 'categories' });
  for (const code of order.slice(0, NUM_COLOURS)) {
    const button = element('button', { type: 'button', 'aria-pressed': String(map.highlighted === code), onclick: () => highlight(map, code) },
      element('span', { class: 'dot', colour: css(colours[code]) }),
      element('span', { class: 'name', title: names[code] }, names[code]),
      element('span', { class: 'figure' }, counts[code].toLocaleString('en')));
    list.append(element('li', {}, button));
  }
  const rest = map.count - order.slice(0, NUM_COLOURS).reduce((sum, code) => sum + counts[code], 0);
  if (rest > 0) {
    const line = element('button', { type: 'button', disabled: '' }, element('span', { class: 'dot', colour: css(GREY) }),
      element('span', { class: 'name' }, order.length > NUM_COLOURS ? 'others and none' : 'none'), element('span', { class: 'figure' }, rest.toLocaleString('en')));
    list.append(element('li', {}, line));
  }
  return list;
}

function numberLegend(map) {
  const { sorted } = map.column;
  const stops = [0, 64, 128, 192, 255].map((index) => css(RAMP[index])).join(', ');
  const at = (part) => (sorted.length ? shownNumber(sorted[Math.round(part * (sorted.length - 1))]) : '–');
  return element('div', {}, element('div', { class: 'ramp', colour: `linear-gradient(to right, ${stops})` }),
    element('div', { class: 'ramp-ends' }, ...[0, 0.5, 1].map((part) => element('span', {}, at(part)))),
    element('p', { class: 'note' }, 'smallest, median and largest; shades by rank'));
}

// ---- toolbar --------------------------------------------------------------------------------------------------------

function showNotes(map) {
  const kept = Math.round(100 * map.header.kept[map.layout]);
  const quality = `On this map ${kept} % of a node's ten nearest nodes are still among its ten nearest.`;
  const notes = ['Drag to pan, scroll to zoom, click a node to see its nearest nodes.', quality, ...map.header.notes];
  document.getElementById('map-notes').textContent = notes.join(' ');
}

function makeToolbar(map) {
  showNotes(map);
  const layouts = document.getElementById('layouts');
  for (const name of map.header.layouts) {
    const choose = () => {
      setLayout(map, name);
      showNotes(map);
      for (const other of layouts.children) other.setAttribute('aria-pressed', String(other === button));
    };
    const button = element('button', { type: 'button', 'aria-pressed': String(name === map.layout), onclick: choose }, LAYOUT_TITLES[name] || name);
    layouts.append(button);
  }
  const chooser = document.getElementById('colour');
  map.header.columns.forEach((column, index) => chooser.append(element('option', { value: index }, column.title)));
  chooser.addEventListener('change', () => setColumn(map, map.header.columns[chooser.value]));
  for (const button of document.querySelectorAll('[data-zoom]')) {
    const way = Number(button.dataset.zoom);
    button.addEventListener('click', () => (way === 0 ? showAll(map) : zoomAt(map, way > 0 ? 1.6 : 1 / 1.6)));
  }
}

// ---- search ---------------------------------------------------------------------------------------------------------

// The node of this very id first, then those whose ids begin so, then those that contain it.
function findNodes(ids, text) {
  const wanted = text.toLowerCase();
  const groups = [[], [], []];
  for (let node = 0; node < ids.length; node++) {
    const id = ids[node].toLowerCase();
    const at = id.indexOf(wanted);
    if (at < 0) continue;
    const group = groups[id === wanted ? 0 : at === 0 ? 1 : 2];
    if (group.length < MAX_MATCHES) group.push(node);
  }
  return groups.flat().slice(0, MAX_MATCHES);
}

function makeSearch(map) {
  const input = document.getElementById('search');
  const list = document.getElementById('matches');
  let found = [];
  let chosen = 0;
  const close = () => { list.hidden = true; input.setAttribute('aria-expanded', 'false'); };
  const take = (node) => { select(map, node); goTo(map, node); close(); map.stage.focus({ preventScroll: true }); };
  const render = () => {
    list.replaceChildren(...found.map((node, place) => element('li', { role: 'option', 'aria-selected': String(place === chosen), onpointerdown: () => take(node) }, map.ids[node])));
    if (!found.length) list.append(element('li', { class: 'none' }, 'no node has such an id'));
    list.hidden = false;
    input.setAttribute('aria-expanded', 'true');
  };
  input.addEventListener('input', () => {
    found = input.value ? findNodes(map.ids, input.value.trim()) : [];
    chosen = 0;
    if (input.value) render();
    else close();
  });
  input.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') close();
    else if (event.key === 'Enter' && found.length) take(found[chosen]);
    else if ((event.key === 'ArrowDown' || event.key === 'ArrowUp') && found.length) {
      chosen = (chosen + (event.key === 'ArrowDown' ? 1 : found.length - 1)) % found.length;
      event.preventDefault();
      render();
    }
  });
  input.addEventListener('blur', close);
}

// ---- pointer and keys -----------------------------------------------------------------------------------------------

function spot(map, event) {
  const box = map.stage.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

function hover(map, at) {
  const node = at ? nodeAt(map, at) : -1;
  const tooltip = document.getElementById('tooltip');
  if (node !== map.hovered) {
    map.hovered = node;
    tooltip.hidden = node < 0;
    if (node >= 0) fillTooltip(map, tooltip, node);
    requestDraw(map);
  }
  if (node >= 0) placeTooltip(map, tooltip, at);
}

function fillTooltip(map, tooltip, node) {
  const lines = attributesOf(map, node).slice(0, 6).map(([name, text]) => element('span', {}, `${name}: ${shorten(text, 60)}`));
  tooltip.replaceChildren(element('b', {}, map.ids[node]), ...lines);
}

function placeTooltip(map, tooltip, [x, y]) {
  const left = x + 16 + tooltip.offsetWidth > map.view.width ? x - 12 - tooltip.offsetWidth : x + 16;
  const top = Math.min(y + 14, map.view.height - tooltip.offsetHeight - 6);
  tooltip.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
}

function followPointer(map) {
  const { stage } = map;
  const down = new Map();
  let moved = 0;
  stage.addEventListener('pointerdown', (event) => {
    if (event.target.closest('.zoom')) return;
    down.set(event.pointerId, spot(map, event));
    stage.setPointerCapture(event.pointerId);
    moved = 0;
    hover(map, null);
  });
  stage.addEventListener('pointermove', (event) => {
    const at = spot(map, event);
    const last = down.get(event.pointerId);
    if (!last) return hover(map, event.pointerType === 'mouse' ? at : null);
    moved += Math.abs(at[0] - last[0]) + Math.abs(at[1] - last[1]);
    stage.classList.add('moving');
    if (down.size === 2) pinch(map, down, event.pointerId, at);
    else pan(map, at[0] - last[0], at[1] - last[1]);
    down.set(event.pointerId, at);
  });
  const release = (event) => {
    if (down.delete(event.pointerId) && moved < 5 && event.type === 'pointerup') select(map, nodeAt(map, spot(map, event)));
    stage.classList.remove('moving');
  };
  stage.addEventListener('pointerup', release);
  stage.addEventListener('pointercancel', release);
  stage.addEventListener('pointerleave', () => hover(map, null));
  stage.addEventListener('wheel', (event) => {
    event.preventDefault();
    zoomAt(map, Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0018)), spot(map, event));
  }, { passive: false });
}

function pinch(map, down, id, at) {
  const [, other] = [...down].find(([key]) => key !== id);
  const last = down.get(id);
  const length = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]) || 1;
  zoomAt(map, length(at, other) / length(last, other), [(at[0] + other[0]) / 2, (at[1] + other[1]) / 2]);
}

const KEYS = {
  ArrowLeft: (map) => pan(map, 60, 0), ArrowRight: (map) => pan(map, -60, 0),
  ArrowUp: (map) => pan(map, 0, 60), ArrowDown: (map) => pan(map, 0, -60),
  '+': (map) => zoomAt(map, 1.4), '=': (map) => zoomAt(map, 1.4), '-': (map) => zoomAt(map, 1 / 1.4),
  0: (map) => showAll(map), Escape: (map) => select(map, -1),
};

function followKeys(map) {
  map.stage.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
    event.preventDefault();
    KEYS[event.key](map);
  });
  document.addEventListener('keydown', (event) => {
    if (event.key !== '/' || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
    event.preventDefault();
    document.getElementById('search').focus();
  });
}
