// A sigmoid for each output against values from 0 to 1, a row of sums is one sample of SIZE outputs. x, wanted (B,
// SIZE) → loss (B,) = Σ max(x, 0) − x · wanted + ln(1 + e^−|x|), dx = sigmoid(x) − wanted, correct (B,) = outputs on
// the same side of ½ as `wanted`. One that wants exactly ½ has no side.

@compute @workgroup_size(WORKGROUP)
fn loss_and_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let sample = row_of(group, lane);
  if (sample >= run.samples) { return; }
  var sum = 0.0;
  var right = 0.0;
  for (var i = sample * SIZE + sharer(lane); i < (sample + 1u) * SIZE; i += SHARERS) {
    let v = x[i];
    let t = wanted[i];
    let small = exp(-abs(v));
    sum += max(v, 0.0) - v * t + log(1.0 + small);
    dx[i] = select(small, 1.0, v >= 0.0) / (1.0 + small) - t;
    right += select(0.0, 1.0, v * (t - 0.5) > 0.0);
  }
  let whole = sum_of_row(lane, vec4f(sum, right, 0.0, 0.0));
  if (sharer(lane) > 0u) { return; }
  loss[sample] = whole.x;
  correct[sample] = whole.y;
}
