// The times and counts of a run, each with its reason. Tests shorten them; the rules do not change.
import type { Timing } from './state.ts'

export const DEFAULT_TIMING: Timing = {
  stateMs: 2000, // T_state of R5: one lost message and its socket's round trip
  rejoinMs: 10_000, // reconnects are spread over a few seconds by full jitter
  lostMs: 60_000, // T_lost of R6: everybody vanishing is mostly our own network
  formMs: 30_000, // fetch of a state plus LINK_OPEN_MS for the links
  stallMs: 60_000, // a reduce has its own deadlines; this is the net below them
  admitMs: 2000, // joins come in bunches: one ballot for all of them
  checkpointSteps: 200,
  uploadMs: 20_000, // a state of 64 M parameters and two moments takes so long at 300 Mbit/s
  checkpointMs: 15_000, // the bound on repeated work that promise 2 states for async mode (A4)
  leaseMinMs: 10_000,
  leaseMaxMs: 600_000,
  quietMs: 20_000,
  quietMaxMs: 300_000,
  abortsBeforeFallback: 3, // k of R17
  ballotsPerMinute: 20, // X of R17
  excludeMs: 60_000,
  linkMemoryMs: 600_000, // routers and networks change some times a day; a try that fails costs LINK_OPEN_MS
  stalenessBound: 16, // of the order of the volunteers that push at once; performance.md §6 gives 3–10 for SSP
}
