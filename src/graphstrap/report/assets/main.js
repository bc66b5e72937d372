// Start: theme, charts, map.

function makeThemeButton(redraw) {
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark';
  document.getElementById('theme').addEventListener('click', () => {
    root.dataset.theme = isDark() ? 'light' : 'dark';
    redraw();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
}

async function startMap(header) {
  document.getElementById('map-section').hidden = false;
  const map = makeMap(header, await readArrays(header.arrays), document.getElementById('stage'));
  map.listeners.push(showNode, showLegend);
  setColumn(map, header.columns[0]);
  makeToolbar(map);
  makeSearch(map);
  followPointer(map);
  followKeys(map);
  new ResizeObserver(() => resizeMap(map)).observe(map.stage);
  resizeMap(map);
  return map;
}

async function start() {
  const data = readJson('data');
  let map = null;
  makeThemeButton(() => map && requestDraw(map));
  makeCharts(data.series, data.num_seeds);
  if (data.map) map = await startMap(data.map);
  // For tests and for the curious: where a node is on the screen, what is selected, how many frames were drawn.
  window.graphstrap = {
    kind: map && map.points.kind,
    selected: () => map.selected,
    hovered: () => map.hovered,
    frames: () => map.frames,
    view: () => ({ ...map.view }),
    screenOf: (node) => toScreen(map, placeOf(map, node)),
    pan: (dx, dy) => pan(map, dx, dy),
  };
  document.documentElement.dataset.ready = 'yes';
}

start();
