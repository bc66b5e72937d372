// Drawing all nodes: WebGL, or a plain canvas where there is none or where it is drawn by the processor: 100,000 nodes
// took three times as long by SwiftShader as by the canvas. Both take the same calls. `?webgl` and `?canvas` force one.

const VERTEX_SHADER = `
attribute vec2 from; attribute vec2 to; attribute vec4 colour;
uniform float mixed; uniform vec2 centre; uniform vec2 scale; uniform mediump float size;
varying vec4 shade;
void main() {
  vec2 place = (mix(from, to, mixed) - centre) * scale;
  gl_Position = vec4(place.x, -place.y, 0.0, 1.0);
  gl_PointSize = size;
  shade = vec4(colour.rgb * colour.a, colour.a);
}`;

const FRAGMENT_SHADER = `
precision mediump float;
varying vec4 shade; uniform mediump float size;
void main() {
  float away = length(gl_PointCoord - 0.5) * size;
  float cover = clamp(size * 0.5 - away + 0.25, 0.0, 1.0);
  if (cover <= 0.0) discard;
  gl_FragColor = shade * cover;
}`;

function makePoints(canvas, count) {
  const asked = location.search.slice(1);
  const options = { antialias: false, failIfMajorPerformanceCaveat: asked !== 'webgl' };
  const gl = asked === 'canvas' ? null : canvas.getContext('webgl', options);
  const program = gl && (asked === 'webgl' || !isSoftware(gl)) && linkProgram(gl);
  return program ? glPoints(gl, program, canvas, count) : flatPoints(gl ? freshCanvas(canvas) : canvas, count);
}

function isSoftware(gl) {
  const known = gl.getExtension('WEBGL_debug_renderer_info');
  const name = gl.getParameter(known ? known.UNMASKED_RENDERER_WEBGL : gl.RENDERER);
  return /swiftshader|llvmpipe|softpipe|software|basic render/i.test(String(name));
}

// A canvas that has been asked for WebGL gives nothing else.
function freshCanvas(canvas) {
  const fresh = canvas.cloneNode();
  canvas.replaceWith(fresh);
  return fresh;
}

function compile(gl, kind, source) {
  const shader = gl.createShader(kind);
  gl.shaderSource(shader, source);
  gl.compileShader(shader);
  return shader;
}

function linkProgram(gl) {
  const program = gl.createProgram();
  gl.attachShader(program, compile(gl, gl.VERTEX_SHADER, VERTEX_SHADER));
  gl.attachShader(program, compile(gl, gl.FRAGMENT_SHADER, FRAGMENT_SHADER));
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) return null;
  gl.useProgram(program);
  return program;
}

function glPoints(gl, program, canvas, count) {
  const uniform = (name) => gl.getUniformLocation(program, name);
  const places = { mixed: uniform('mixed'), centre: uniform('centre'), scale: uniform('scale'), size: uniform('size') };
  const fill = (name, array, width, kind) => {
    const index = gl.getAttribLocation(program, name);
    const buffer = (buffers[name] ||= gl.createBuffer());
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.bufferData(gl.ARRAY_BUFFER, array, gl.DYNAMIC_DRAW);
    gl.enableVertexAttribArray(index);
    gl.vertexAttribPointer(index, width, kind, true, 0, 0);
  };
  const buffers = {};
  gl.enable(gl.BLEND);
  gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  return {
    kind: 'webgl',
    setLayouts(from, to) {
      fill('from', from, 2, gl.UNSIGNED_SHORT);
      fill('to', to, 2, gl.UNSIGNED_SHORT);
    },
    setColours(colours) { fill('colour', colours, 4, gl.UNSIGNED_BYTE); },
    draw(view, mixed, size) {
      gl.viewport(0, 0, canvas.width, canvas.height);
      gl.clearColor(0, 0, 0, 0);
      gl.clear(gl.COLOR_BUFFER_BIT);
      gl.uniform1f(places.mixed, mixed);
      gl.uniform2f(places.centre, view.x, view.y);
      gl.uniform2f(places.scale, (2 * view.scale) / view.width, (2 * view.scale) / view.height);
      gl.uniform1f(places.size, size * view.ratio);
      gl.drawArrays(gl.POINTS, 0, count);
    },
  };
}

// Pixels are written as whole numbers, the opacity in the highest byte (as on every processor that has a browser).
function flatPoints(canvas, count) {
  const context = canvas.getContext('2d');
  let from, to, colours, image, pixels;
  const clear = () => {
    if (image && image.width === canvas.width && image.height === canvas.height) return pixels.fill(0);
    image = context.createImageData(canvas.width, canvas.height);
    pixels = new Uint32Array(image.data.buffer);
  };
  return {
    kind: 'canvas',
    setLayouts(a, b) { [from, to] = [a, b]; },
    setColours(array) { colours = new Uint32Array(array.buffer); },
    draw(view, mixed, size) {
      clear();
      const { width, height } = canvas;
      const side = Math.max(1, Math.round(size * view.ratio * 0.85));
      const factor = (view.scale * view.ratio) / 65535;
      const shiftX = (view.width / 2 - view.x * view.scale) * view.ratio - side / 2 + 0.5;
      const shiftY = (view.height / 2 - view.y * view.scale) * view.ratio - side / 2 + 0.5;
      for (let i = 0; i < count; i++) {
        const left = Math.floor((from[2 * i] + (to[2 * i] - from[2 * i]) * mixed) * factor + shiftX);
        const top = Math.floor((from[2 * i + 1] + (to[2 * i + 1] - from[2 * i + 1]) * mixed) * factor + shiftY);
        if (left < 0 || top < 0 || left + side > width || top + side > height) continue;
        paint(pixels, top * width + left, width, side, colours[i]);
      }
      context.putImageData(image, 0, 0);
    },
  };
}

// A square without its corners; the stronger colour stays where nodes overlap.
function paint(pixels, start, width, side, colour) {
  const strength = colour >>> 24;
  for (let row = 0; row < side; row++) {
    const cut = side > 3 && (row === 0 || row === side - 1) ? 1 : 0;
    const end = start + row * width + side - cut;
    for (let at = start + row * width + cut; at < end; at++) {
      if (pixels[at] >>> 24 <= strength) pixels[at] = colour;
    }
  }
}
