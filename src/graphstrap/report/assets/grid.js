// The node nearest to a place: nodes sorted into the cells of a square grid.

function makeGrid(positions) {
  const count = positions.length / 2;
  const side = Math.max(1, Math.min(512, Math.round(Math.sqrt(count / 2))));
  const cell = (value) => Math.min(side - 1, Math.floor((value / 65536) * side));
  const starts = new Int32Array(side * side + 1);
  for (let i = 0; i < count; i++) starts[cell(positions[2 * i + 1]) * side + cell(positions[2 * i]) + 1] += 1;
  for (let c = 0; c < side * side; c++) starts[c + 1] += starts[c];
  const next = starts.slice();
  const items = new Int32Array(count);
  for (let i = 0; i < count; i++) items[next[cell(positions[2 * i + 1]) * side + cell(positions[2 * i])]++] = i;
  return { side, starts, items, positions };
}

// x, y and reach in map units (the map is 1 wide); -1 when there is no node within reach.
function nearestInGrid(grid, x, y, reach) {
  const { side, starts, items, positions } = grid;
  const clamp = (value) => Math.min(side - 1, Math.max(0, Math.floor(value * side)));
  let best = -1;
  let least = reach * reach;
  for (let row = clamp(y - reach); row <= clamp(y + reach); row++) {
    for (let column = clamp(x - reach); column <= clamp(x + reach); column++) {
      for (let k = starts[row * side + column]; k < starts[row * side + column + 1]; k++) {
        const i = items[k];
        const dx = positions[2 * i] / 65535 - x;
        const dy = positions[2 * i + 1] / 65535 - y;
        const apart = dx * dx + dy * dy;
        if (apart < least) [best, least] = [i, apart];
      }
    }
  }
  return best;
}
