// Colours: twenty for categories, a ramp for numbers, both made in OKLCH so that they are equally visible.

const NUM_COLOURS = 20;
const GREY = [150, 156, 166];

function oklch(lightness, chroma, hue) {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return linear.map((v) => {
    const c = Math.min(1, Math.max(0, v));
    return Math.round(255 * (c <= 0.0031308 ? 12.92 * c : 1.055 * c ** (1 / 2.4) - 0.055));
  });
}

// Ten hues, then the ten between them, lighter and darker in turn.
function categoryColour(index) {
  const step = (index * 7) % 10;
  const second = index >= 10;
  const lightness = second ? (index % 2 ? 0.5 : 0.8) : index % 2 ? 0.62 : 0.7;
  return oklch(lightness, second ? 0.11 : 0.16, 255 + step * 36 + (second ? 18 : 0));
}

const CATEGORY_COLOURS = Array.from({ length: NUM_COLOURS }, (_, index) => categoryColour(index));

// From dark violet over teal to yellow.
function rampColour(part) {
  return oklch(0.38 + 0.5 * part, 0.13 + 0.03 * Math.sin(part * Math.PI), 300 - 195 * part);
}

const RAMP = Array.from({ length: 256 }, (_, index) => rampColour(index / 255));

function css(colour) {
  return `rgb(${colour[0]}, ${colour[1]}, ${colour[2]})`;
}

// The categories in the order of their size; the largest ones get a colour each, the others are grey.
function rankCategories(codes, names) {
  const counts = new Int32Array(names.length);
  for (const code of codes) if (code >= 0) counts[code] += 1;
  const order = Array.from(counts.keys()).filter((code) => counts[code] > 0);
  order.sort((a, b) => counts[b] - counts[a] || a - b);
  const colours = names.map(() => GREY);
  order.slice(0, NUM_COLOURS).forEach((code, place) => { colours[code] = CATEGORY_COLOURS[place]; });
  return { counts, order, colours };
}

// Where each number stands among all, from 0 to 255: every shade is used as often as any other.
function rankNumbers(values) {
  const sorted = Float32Array.from(values.filter((value) => !Number.isNaN(value))).sort();
  const ranks = new Int16Array(values.length);
  const last = Math.max(1, sorted.length - 1);
  for (let i = 0; i < values.length; i++) {
    ranks[i] = Number.isNaN(values[i]) ? -1 : Math.round((255 * middleOf(sorted, values[i])) / last);
  }
  return { ranks, sorted };
}

// The middle of the places that a value takes in a sorted array.
function middleOf(sorted, value) {
  return (bound(sorted, value, false) + bound(sorted, value, true) - 1) / 2;
}

function bound(sorted, value, after) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value || (after && sorted[middle] === value)) low = middle + 1;
    else high = middle;
  }
  return low;
}
