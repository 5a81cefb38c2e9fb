// Counts what the event loop gets done beside long work: no time, which a busy machine would stretch.

/** Turns of the event loop that pass while the work goes on. */
export async function turnsDuring(work: () => Promise<unknown>): Promise<number> {
  let turns = 0
  let running = true
  const transition = (): void => {
    turns++
    if (running) setImmediate(transition)
  }
  setImmediate(transition)
  await work().finally(() => {
    running = false
  })
  return turns
}
