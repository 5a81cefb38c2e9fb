// Dawn asks for the results of GPU work by calling itself through `setImmediate`, again and again. On a software
// adapter that takes a core from the work it waits for. Waiting by timer instead made dispatches of 10 ms and 280 ms
// 1.4 and 1.6 times faster (SwiftShader, 2 cores). It costs 1.2 ms where the work is shorter than that. A GPU does not
// compete for the core, so there the 1.2 ms would be pure loss.

/** The shortest interval of Node's timers. */
const PAUSE_MS = 1

let softwareDevices = 0
let installed = false

/** Call before Dawn's `create()`. */
export function installPoll(): void {
  if (installed) return
  installed = true
  const immediately = globalThis.setImmediate
  const orByTimer = (callback: (...args: unknown[]) => void, ...args: unknown[]) =>
    softwareDevices > 0 && args.length === 0 && isDawns(callback)
      ? setTimeout(callback, PAUSE_MS)
      : immediately(callback, ...args)
  // Dawn looks the function up each time. Callers in JavaScript keep what setImmediate promises, util.promisify
  // included.
  globalThis.setImmediate = Object.assign(orByTimer, immediately) as typeof setImmediate
}

/** From now on Dawn waits by timer, until the returned function is called. */
export function waitByTimer(): () => void {
  softwareDevices++
  return () => void softwareDevices--
}

/** Dawn's callback is native and has no name. */
function isDawns(callback: (...args: never[]) => void): boolean {
  return callback.name === '' && Function.prototype.toString.call(callback).includes('[native code]')
}
