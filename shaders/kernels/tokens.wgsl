// A learned vector of TOKEN elements before x, and the first vector alone. x (B, SIZE)

// y (B, TOKEN + SIZE): one element per invocation
@compute @workgroup_size(WORKGROUP)
fn prepend(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  let sample = i / (TOKEN + SIZE);
  let place = i % (TOKEN + SIZE);
  if (sample >= run.samples) { return; }
  if (place < TOKEN) { y[i] = weight[place]; } else { y[i] = x[sample * SIZE + place - TOKEN]; }
}

// dweight += Σ_samples of the first TOKEN elements of dy (B, TOKEN + SIZE): four per row of sums
@compute @workgroup_size(WORKGROUP)
fn prepended_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let column = row_of(group, lane) * 4u;
  if (column >= TOKEN) { return; }
  var sum = vec4f();
  for (var row = sharer(lane); row < run.samples; row += SHARERS) { sum += dy_quad(row * dy_stride, column); }
  sum = sum_of_row(lane, sum);
  if (sharer(lane) == 0u) { dweight_add(0u, column, sum); }
}

// dy (B, TOKEN) → dx (B, SIZE), 0 behind the first vector: one element per invocation
@compute @workgroup_size(WORKGROUP)
fn first_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  let place = i % SIZE;
  if (i >= run.samples * SIZE) { return; }
  if (place < TOKEN) { dx[i] = dy[i / SIZE * TOKEN + place]; } else { dx[i] = 0.0; }
}
