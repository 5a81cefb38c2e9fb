// Each cell becomes a square of SCALE × SCALE equal ones. x (B · CHANNELS, HEIGHT, WIDTH) ⇄ y (…, H · SCALE, W · SCALE)

// One cell of y per invocation.
@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  let wide = WIDTH * SCALE;
  let row = i / wide;
  let plane = row / (HEIGHT * SCALE);
  if (plane >= run.samples * CHANNELS) { return; }
  y[i] = x[(plane * HEIGHT + row % (HEIGHT * SCALE) / SCALE) * WIDTH + i % wide / SCALE];
}

// One cell of dx per invocation: the sum of its square.
@compute @workgroup_size(WORKGROUP)
fn backward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * CHANNELS * HEIGHT * WIDTH) { return; }
  let corner = i / WIDTH * SCALE * WIDTH * SCALE + i % WIDTH * SCALE;
  var sum = 0.0;
  for (var r = 0u; r < SCALE; r++) {
    for (var c = 0u; c < SCALE; c++) { sum += dy[corner + r * WIDTH * SCALE + c]; }
  }
  dx[i] = sum;
}
