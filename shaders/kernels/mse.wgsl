// Squared error, a row of sums is one sample of SIZE values. x, wanted (B, SIZE) → loss (B,) = Σ (x − wanted)², dx = 2
// (x − wanted).

@compute @workgroup_size(WORKGROUP)
fn loss_and_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let sample = row_of(group, lane);
  if (sample >= run.samples) { return; }
  var sum = 0.0;
  for (var i = sample * SIZE + sharer(lane); i < (sample + 1u) * SIZE; i += SHARERS) {
    let error = x[i] - wanted[i];
    sum += error * error;
    dx[i] = 2.0 * error;
  }
  sum = sum_of_row(lane, vec4f(sum, 0.0, 0.0, 0.0)).x;
  if (sharer(lane) == 0u) { loss[sample] = sum; }
}
