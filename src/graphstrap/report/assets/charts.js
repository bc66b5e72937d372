// Line charts of training: one SVG each, with a cross-hair that reads the values.

const BOX = { width: 320, height: 150, left: 38, right: 8, top: 10, bottom: 20 };

function svg(tag, attributes, ...children) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Round numbers that span the values: the fewest that are at least `least`.
function ticks(low, high, least) {
  const extent = high - low || Math.abs(high) || 1;
  const power = 10 ** Math.floor(Math.log10(extent));
  for (const step of [5, 2, 1, 0.5, 0.2, 0.1].map((n) => n * power)) {
    const made = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) made.push(k * step + 0);
    if (made.length >= least) return made;
  }
  return [low, high];
}

function shownFigure(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 100000)) return value.toExponential(1).replace('e+', 'e');
  return String(Number(value.toPrecision(size >= 0.99 && size < 1 ? 5 : 3)));
}

function shownSeconds(value) {
  return value >= 120 ? `${shownFigure(value / 60)} min` : `${shownFigure(value)} s`;
}

function chartScales(xs, { values, low: lows, high: highs, floor }) {
  let low = Math.min(...(lows ?? values), floor ?? Infinity);
  let high = Math.max(...(highs ?? values));
  const margin = (high - low || Math.abs(high) || 1) * 0.08;
  const [left, right] = [Math.min(0, xs[0]), xs[xs.length - 1] || 1];
  if (low >= 0 && low < (high - low) * 0.6) low = 0;
  else low -= margin;
  high += margin;
  return {
    low, high, left, right,
    x: (value) => BOX.left + ((value - left) / (right - left || 1)) * (BOX.width - BOX.left - BOX.right),
    y: (value) => BOX.height - BOX.bottom - ((value - low) / (high - low)) * (BOX.height - BOX.top - BOX.bottom),
  };
}

function drawChart(holder, series, axis) {
  const xs = series[axis];
  const scales = chartScales(xs, series);
  const shape = series.values.map((value, i) => `${scales.x(xs[i]).toFixed(1)},${scales.y(value).toFixed(1)}`);
  const base = BOX.height - BOX.bottom;
  const picture = svg('svg', { viewBox: `0 0 ${BOX.width} ${BOX.height}`, role: 'img', 'aria-label': `${series.title}: from ${shownFigure(series.values[0])} to ${shownFigure(series.values.at(-1))}` });
  for (const tick of ticks(scales.low, scales.high, 3)) {
    const y = scales.y(tick);
    picture.append(svg('line', { class: 'grid', x1: BOX.left, x2: BOX.width - BOX.right, y1: y, y2: y }));
    picture.append(svg('text', { x: BOX.left - 6, y: y + 3, 'text-anchor': 'end' }, shownFigure(tick)));
  }
  for (const tick of ticks(scales.left, scales.right, 3)) {
    const text = axis === 'seconds' ? shownSeconds(tick) : tick.toLocaleString('en');
    picture.append(svg('text', { x: scales.x(tick), y: BOX.height - 4, 'text-anchor': 'middle' }, text));
  }
  if (series.floor !== undefined) {
    const y = scales.y(series.floor);
    picture.append(svg('line', { class: 'floor', x1: BOX.left, x2: BOX.width - BOX.right, y1: y, y2: y }));
  }
  if (series.low) picture.append(svg('path', { class: 'band', d: bandShape(xs, series, scales) }));
  else if (scales.low === 0) picture.append(svg('path', { class: 'area', d: `M${scales.x(xs[0])},${base}L${shape.join('L')}L${scales.x(xs.at(-1))},${base}Z` }));
  picture.append(svg('path', { class: 'line', d: `M${shape.join('L')}` }));
  followChart(holder, picture, series, xs, scales, axis);
  holder.querySelector('svg')?.remove();
  holder.append(picture);
}

// From the least to the largest of all seeds.
function bandShape(xs, series, scales) {
  const points = (values) => values.map((value, i) => `${scales.x(xs[i]).toFixed(1)},${scales.y(value).toFixed(1)}`);
  return `M${[...points(series.high), ...points(series.low).reverse()].join('L')}Z`;
}

// A value, and between seeds its least and largest.
function shownValue(series, i) {
  const range = series.low ? ` (${shownFigure(series.low.at(i))} to ${shownFigure(series.high.at(i))})` : '';
  return shownFigure(series.values.at(i)) + range;
}

function followChart(holder, picture, series, xs, scales, axis) {
  const cross = svg('line', { class: 'cross', y1: BOX.top, y2: BOX.height - BOX.bottom, visibility: 'hidden' });
  const dot = svg('circle', { r: 4, visibility: 'hidden' });
  const reading = holder.querySelector('output');
  const show = (i) => {
    const x = scales.x(xs[i]);
    for (const [name, value] of Object.entries({ x1: x, x2: x, visibility: 'visible' })) cross.setAttribute(name, value);
    for (const [name, value] of Object.entries({ cx: x, cy: scales.y(series.values[i]), visibility: 'visible' })) dot.setAttribute(name, value);
    const where = axis === 'seconds' ? shownSeconds(xs[i]) : `step ${xs[i].toLocaleString('en')}`;
    reading.textContent = `${shownValue(series, i)} · ${where}`;
  };
  const rest = () => {
    cross.setAttribute('visibility', 'hidden');
    dot.setAttribute('visibility', 'hidden');
    reading.textContent = shownValue(series, -1);
  };
  picture.append(cross, dot);
  picture.addEventListener('pointermove', (event) => {
    const box = picture.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * BOX.width;
    let best = 0;
    xs.forEach((value, i) => { if (Math.abs(scales.x(value) - at) < Math.abs(scales.x(xs[best]) - at)) best = i; });
    show(best);
  });
  picture.addEventListener('pointerleave', rest);
  rest();
}

function makeCharts(all, numSeeds) {
  const place = document.getElementById('charts');
  if (numSeeds > 1) place.before(element('p', { class: 'note spread' }, `The line is the mean of ${numSeeds} seeds, the band goes from the least of them to the largest.`));
  document.getElementById('training').hidden = all.length === 0;
  const holders = all.map((series) => element('div', { class: 'chart' }, element('h3', {}, series.title, element('output')), element('p', {}, series.hint)));
  place.append(...holders);
  const draw = (axis) => holders.forEach((holder, i) => drawChart(holder, all[i], axis));
  const buttons = document.querySelectorAll('[data-axis]');
  for (const button of buttons) {
    button.addEventListener('click', () => {
      for (const other of buttons) other.setAttribute('aria-pressed', String(other === button));
      draw(button.dataset.axis);
    });
  }
  draw('steps');
}
