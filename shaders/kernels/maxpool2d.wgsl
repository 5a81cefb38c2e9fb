// Max pooling. x (B, C, H, W) → y (B, C, OUT_HEIGHT, OUT_WIDTH): one element of y per invocation, four of dx.
// Cells outside the input never win; the first of equal cells does, in forward and backward alike.

struct Cells { top: u32, bottom: u32, left: u32, right: u32 }

// The input cells top ≤ row < bottom, left ≤ column < right that the window at (line, position) covers.
fn cells_of(line: u32, position: u32) -> Cells {
  let row = line * STRIDE;
  let column = position * STRIDE;
  return Cells(
    max(row, PADDING) - PADDING, min(row + KERNEL, HEIGHT + PADDING) - PADDING,
    max(column, PADDING) - PADDING, min(column + KERNEL, WIDTH + PADDING) - PADDING,
  );
}

// Index in x of the largest cell of that window.
fn largest(plane: u32, line: u32, position: u32) -> u32 {
  let cells = cells_of(line, position);
  var best = plane * HEIGHT * WIDTH + cells.top * WIDTH + cells.left;
  var value = x[best];
  for (var row = cells.top; row < cells.bottom; row++) {
    for (var column = cells.left; column < cells.right; column++) {
      let i = (plane * HEIGHT + row) * WIDTH + column;
      if (x[i] > value) { best = i; value = x[i]; }
    }
  }
  return best;
}

@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * CHANNELS * OUT_HEIGHT * OUT_WIDTH) { return; }
  y[i] = x[largest(i / (OUT_HEIGHT * OUT_WIDTH), i / OUT_WIDTH % OUT_HEIGHT, i % OUT_WIDTH)];
}

// Each input cell gathers from the windows that it won.
@compute @workgroup_size(WORKGROUP)
fn backward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * CHANNELS * HEIGHT * IN_QUADS) { return; }
  let row = i / IN_QUADS; // (sample · CHANNELS + channel) · HEIGHT + line
  let left = i % IN_QUADS * 4u;
  dx_put(row, left, vec4f(won_by(row, left), won_by(row, left + 1u), won_by(row, left + 2u), won_by(row, left + 3u)));
}

// Σ dy over the windows that a cell won; 0 for cells past the end of the line.
fn won_by(row: u32, column: u32) -> f32 {
  let plane = row / HEIGHT;
  let cell = row * WIDTH + column;
  let lines = windows_over(row % HEIGHT, OUT_HEIGHT);
  let positions = windows_over(column, select(0u, OUT_WIDTH, column < WIDTH));
  var sum = 0.0;
  for (var line = lines.x; line < lines.y; line++) {
    for (var position = positions.x; position < positions.y; position++) {
      if (largest(plane, line, position) == cell) { sum += dy[(plane * OUT_HEIGHT + line) * OUT_WIDTH + position]; }
    }
  }
  return sum;
}

// First and end of the windows along one axis that cover a cell.
fn windows_over(cell: u32, count: u32) -> vec2u {
  let padded = cell + PADDING;
  let first = select(0u, (padded - KERNEL) / STRIDE + 1u, padded >= KERNEL);
  return vec2u(first, min(padded / STRIDE + 1u, count));
}
