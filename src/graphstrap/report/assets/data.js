// What the page carries: JSON, and a compressed block of typed arrays (see packing.py).

const KINDS = { uint8: Uint8Array, uint16: Uint16Array, int32: Int32Array, float32: Float32Array };

function readJson(id) {
  return JSON.parse(document.getElementById(id).textContent);
}

function decodeBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// The first bytes of all numbers, then the second ones, ...: put together again.
function joinPlanes(bytes, Kind) {
  const size = Kind.BYTES_PER_ELEMENT;
  const count = bytes.length / size;
  const joined = new Uint8Array(bytes.length);
  for (let plane = 0; plane < size; plane++) {
    const start = plane * count;
    for (let i = 0; i < count; i++) joined[i * size + plane] = bytes[start + i];
  }
  return new Kind(joined.buffer);
}

async function readArrays(entries) {
  const element = document.getElementById('block');
  const block = await inflate(decodeBase64(element.textContent.trim()));
  element.remove();
  const arrays = {};
  for (const [name, { kind, start, size }] of Object.entries(entries)) {
    const bytes = block.subarray(start, start + size);
    arrays[name] = kind === 'json' ? JSON.parse(new TextDecoder().decode(bytes)) : joinPlanes(bytes, KINDS[kind]);
  }
  return arrays;
}

// Who is linked to whom, both ways: nodes linked to i are items[starts[i]] up to items[starts[i + 1]].
function linkLists(counts, targets) {
  const starts = new Int32Array(counts.length + 1);
  let edge = 0;
  for (let i = 0; i < counts.length; i++) {
    starts[i + 1] += counts[i];
    for (let end = edge + counts[i]; edge < end; edge++) starts[targets[edge] + 1] += 1;
  }
  for (let i = 0; i < counts.length; i++) starts[i + 1] += starts[i];
  const next = starts.slice();
  const items = new Int32Array(2 * targets.length);
  edge = 0;
  for (let i = 0; i < counts.length; i++) {
    for (let end = edge + counts[i]; edge < end; edge++) {
      items[next[i]++] = targets[edge];
      items[next[targets[edge]]++] = i;
    }
  }
  return { starts, items };
}
