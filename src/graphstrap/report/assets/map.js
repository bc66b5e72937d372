// The map: what is in view, what is under the pointer, what is selected.

const LAYOUT_TITLES = { neighbours: 'Neighbours (t-SNE)', pca: 'PCA' };
const MAX_LINES = 300;
const ZOOM = { least: 0.5, most: 400 };

function makeMap(header, arrays, stage) {
  const map = {
    header, arrays, stage,
    count: header.num_nodes,
    ids: arrays.ids,
    links: linkLists(arrays.edge_counts, arrays.edge_targets),
    view: { x: 0.5, y: 0.5, scale: 1, width: 1, height: 1, ratio: 1 },
    layout: header.layouts[0], before: header.layouts[0], mixed: 1, grids: {},
    column: null, highlighted: null, hovered: -1, selected: -1, near: new Set(), linked: [],
    colours: new Uint8Array(4 * header.num_nodes),
    points: makePoints(stage.querySelector('#points'), header.num_nodes),
    overlay: stage.querySelector('#overlay').getContext('2d'),
    listeners: [], waiting: false, frames: 0,
  };
  map.points.setLayouts(layoutOf(map, map.layout), layoutOf(map, map.layout));
  return map;
}

function layoutOf(map, name) { return map.arrays[`layout:${name}`]; }

function requestDraw(map) {
  if (map.waiting) return;
  map.waiting = true;
  requestAnimationFrame(() => { map.waiting = false; drawMap(map); });
}

// ---- places ---------------------------------------------------------------------------------------------------------

function placeOf(map, node) {
  const [a, b] = [layoutOf(map, map.before), layoutOf(map, map.layout)];
  const at = (offset) => (a[2 * node + offset] + (b[2 * node + offset] - a[2 * node + offset]) * map.mixed) / 65535;
  return [at(0), at(1)];
}

function toScreen(map, [x, y]) {
  const { view } = map;
  return [(x - view.x) * view.scale + view.width / 2, (y - view.y) * view.scale + view.height / 2];
}

function toMap(map, [x, y]) {
  const { view } = map;
  return [(x - view.width / 2) / view.scale + view.x, (y - view.height / 2) / view.scale + view.y];
}

function fittingScale(map) { return Math.min(map.view.width, map.view.height) * 0.94; }

function resizeMap(map) {
  const { view, stage } = map;
  const first = view.width === 1;
  const zoom = first ? 1 : view.scale / fittingScale(map);
  view.width = Math.max(1, stage.clientWidth);
  view.height = Math.max(1, stage.clientHeight);
  view.ratio = Math.min(2, window.devicePixelRatio || 1);
  for (const canvas of stage.querySelectorAll('canvas')) {
    canvas.width = Math.round(view.width * view.ratio);
    canvas.height = Math.round(view.height * view.ratio);
  }
  view.scale = fittingScale(map) * zoom;
  requestDraw(map);
}

// ---- moving ---------------------------------------------------------------------------------------------------------

function pan(map, dx, dy) {
  map.view.x -= dx / map.view.scale;
  map.view.y -= dy / map.view.scale;
  requestDraw(map);
}

function zoomAt(map, factor, at = [map.view.width / 2, map.view.height / 2]) {
  const [x, y] = toMap(map, at);
  const fit = fittingScale(map);
  map.view.scale = Math.min(ZOOM.most * fit, Math.max(ZOOM.least * fit, map.view.scale * factor));
  const [newX, newY] = toMap(map, at);
  map.view.x += x - newX;
  map.view.y += y - newY;
  requestDraw(map);
}

function showAll(map) {
  Object.assign(map.view, { x: 0.5, y: 0.5, scale: fittingScale(map) });
  requestDraw(map);
}

// To a node, so near that most of its nearest nodes are still in view.
function goTo(map, node) {
  const [x, y] = placeOf(map, node);
  const ways = nearestOf(map, node).map(([other]) => {
    const [otherX, otherY] = placeOf(map, other);
    return Math.max(Math.abs(otherX - x), Math.abs(otherY - y));
  }).sort((a, b) => a - b);
  const reach = ways.length ? ways[Math.floor(0.8 * (ways.length - 1))] : 0;
  const fit = fittingScale(map);
  const scale = Math.min(12 * fit, Math.max(1.5 * fit, (0.4 * fit) / Math.max(reach, 1e-9)));
  Object.assign(map.view, { x, y, scale });
  requestDraw(map);
}

function setLayout(map, name) {
  if (name === map.layout) return;
  [map.before, map.layout] = [map.layout, name];
  map.points.setLayouts(layoutOf(map, map.before), layoutOf(map, map.layout));
  const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
  map.mixed = still ? 1 : 0;
  const start = performance.now();
  const advance = (now) => {
    const part = Math.min(1, Math.max(0, (now - start) / 700));
    map.mixed = part * part * (3 - 2 * part);
    drawMap(map);
    if (part < 1) requestAnimationFrame(advance);
  };
  if (still) drawMap(map);
  else requestAnimationFrame(advance);
}

// ---- choosing -------------------------------------------------------------------------------------------------------

function nodeAt(map, at) {
  const grid = (map.grids[map.layout] ||= makeGrid(layoutOf(map, map.layout)));
  const [x, y] = toMap(map, at);
  return nearestInGrid(grid, x, y, 12 / map.view.scale);
}

function nearestOf(map, node) {
  const { num_nearest: k } = map.header;
  const similarity = (place) => map.arrays.similarities[node * k + place] / 127.5 - 1;
  return Array.from({ length: k }, (_, place) => [map.arrays.nearest[node * k + place], similarity(place)]);
}

function linkedTo(map, node) {
  const { starts, items } = map.links;
  return Array.from(new Set(items.subarray(starts[node], starts[node + 1])));
}

function select(map, node) {
  map.selected = node;
  map.near = new Set(node < 0 ? [] : nearestOf(map, node).map(([other]) => other));
  map.linked = node < 0 ? [] : linkedTo(map, node);
  paintNodes(map);
  for (const listener of map.listeners) listener(map);
}

function setColumn(map, column) {
  const values = map.arrays[column.array];
  const names = map.arrays[`${column.array}:names`];
  map.column = column.kind === 'category'
    ? { ...column, values, names, ...rankCategories(values, names) }
    : { ...column, values, ...rankNumbers(values) };
  map.highlighted = null;
  map.column.anchors = {};
  paintNodes(map);
  for (const listener of map.listeners) listener(map);
}

function highlight(map, code) {
  map.highlighted = map.highlighted === code ? null : code;
  paintNodes(map);
  for (const listener of map.listeners) listener(map);
}

function nodeColour(column, node) {
  const value = column.kind === 'category' ? column.values[node] : column.ranks[node];
  if (value < 0) return GREY;
  return column.kind === 'category' ? column.colours[value] : RAMP[value];
}

function nodeOpacity(map, node, usual) {
  if (map.selected >= 0) return node === map.selected || map.near.has(node) ? 255 : usual * 0.45;
  if (map.highlighted === null) return nodeColour(map.column, node) === GREY ? usual * 0.5 : usual;
  return map.column.values[node] === map.highlighted ? 255 : usual * 0.12;
}

function paintNodes(map) {
  const usual = map.points.kind === 'canvas' ? 235 : map.count > 30000 ? 165 : 215;
  for (let node = 0; node < map.count; node++) {
    const colour = nodeColour(map.column, node);
    map.colours.set(colour, 4 * node);
    map.colours[4 * node + 3] = nodeOpacity(map, node, usual);
  }
  map.points.setColours(map.colours);
  requestDraw(map);
}

// ---- drawing --------------------------------------------------------------------------------------------------------

function pointSize(map) {
  const zoom = map.view.scale / fittingScale(map);
  const usual = Math.min(7, Math.max(2.2, 420 / Math.sqrt(map.count)));
  return Math.min(16, usual * Math.max(1, zoom) ** 0.4);
}

function drawMap(map) {
  map.frames += 1;
  map.points.draw(map.view, map.mixed, pointSize(map));
  const { overlay, view } = map;
  overlay.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
  overlay.clearRect(0, 0, view.width, view.height);
  const style = getComputedStyle(document.documentElement);
  const ink = { text: style.getPropertyValue('--text'), back: style.getPropertyValue('--stage'), accent: style.getPropertyValue('--accent'), soft: style.getPropertyValue('--soft') };
  if (map.selected >= 0) drawSelection(map, ink);
  else if (map.column.kind === 'category') drawNames(map, ink);
  if (map.hovered >= 0) ring(map, map.hovered, ink.text, 2);
}

function drawSelection(map, ink) {
  lines(map, map.linked.slice(0, MAX_LINES), ink.soft, 1, 0.55);
  lines(map, map.near, ink.accent, 1.6, 0.9);
  for (const node of map.near) ring(map, node, ink.accent, 1.6);
  ring(map, map.selected, ink.text, 3);
  label(map, toScreen(map, placeOf(map, map.selected)), shorten(map.ids[map.selected], 40), ink, -16);
}

function lines(map, nodes, colour, width, opacity) {
  const { overlay } = map;
  const [x, y] = toScreen(map, placeOf(map, map.selected));
  overlay.globalAlpha = opacity;
  overlay.strokeStyle = colour;
  overlay.lineWidth = width;
  overlay.beginPath();
  for (const node of nodes) {
    overlay.moveTo(x, y);
    overlay.lineTo(...toScreen(map, placeOf(map, node)));
  }
  overlay.stroke();
  overlay.globalAlpha = 1;
}

function ring(map, node, colour, width) {
  const { overlay } = map;
  const [x, y] = toScreen(map, placeOf(map, node));
  overlay.strokeStyle = colour;
  overlay.lineWidth = width;
  overlay.beginPath();
  overlay.arc(x, y, pointSize(map) / 2 + 2.5, 0, 2 * Math.PI);
  overlay.stroke();
}

// Text over a place, moved sideways where it would stick out of the map while its place is inside.
function label(map, [middle, y], text, ink, shift = 0) {
  const { overlay, view } = map;
  overlay.font = '600 13px system-ui, sans-serif';
  const half = overlay.measureText(text).width / 2 + 6;
  const isInside = middle > 0 && middle < view.width && 2 * half < view.width;
  const x = isInside ? Math.min(view.width - half, Math.max(half, middle)) : middle;
  overlay.textAlign = 'center';
  overlay.textBaseline = 'middle';
  overlay.lineJoin = 'round';
  overlay.lineWidth = 4;
  overlay.strokeStyle = ink.back;
  overlay.strokeText(text, x, y + shift);
  overlay.fillStyle = ink.text;
  overlay.fillText(text, x, y + shift);
}

// Names of the largest categories where most of their nodes are; one that would cover another is left out.
function drawNames(map, ink) {
  if (map.mixed < 1) return;
  const anchors = (map.column.anchors[map.layout] ||= nameAnchors(map));
  const taken = [];
  for (const { name, place } of anchors) {
    const at = toScreen(map, place);
    const half = 4 * name.length + 6;
    if (taken.some(([x, y, other]) => Math.abs(x - at[0]) < half + other && Math.abs(y - at[1]) < 17)) continue;
    taken.push([...at, half]);
    label(map, at, name, ink);
  }
}

function nameAnchors(map) {
  const { order, names } = map.column;
  return order.slice(0, NUM_COLOURS).map((code) => ({ name: shorten(names[code], 24), place: densestPlace(map, code) }));
}

// The middle of the fullest of 24 x 24 cells, among the nodes of one category.
function densestPlace(map, code) {
  const positions = layoutOf(map, map.layout);
  const cells = new Map();
  for (let node = 0; node < map.count; node++) {
    if (map.column.values[node] !== code) continue;
    const key = Math.floor(positions[2 * node] / 2731) * 24 + Math.floor(positions[2 * node + 1] / 2731);
    const cell = cells.get(key) || [0, 0, 0];
    cells.set(key, [cell[0] + 1, cell[1] + positions[2 * node], cell[2] + positions[2 * node + 1]]);
  }
  const [count, x, y] = [...cells.values()].reduce((best, cell) => (cell[0] > best[0] ? cell : best));
  return [x / count / 65535, y / count / 65535];
}

function shorten(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}
