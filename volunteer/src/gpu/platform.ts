// What runs shaders on an adapter: the engine with its version, and the system. Kernels that are fast in one are slow
// in another. Pure.

/** Only the major version of browsers counts. All of Chromium say `Chrome`; Safari says its version as `Version`. */
const ENGINE = /webgpu\/[\d.]{1,20}|(?:Firefox|Chrome|Version)\/\d{1,6}/
/** Those first whose names others mention, too. */
const SYSTEMS = ['Android', 'iPhone', 'iPad', 'Windows', 'CrOS', 'Mac OS', 'Linux']

/**
 * `userAgent`: as browsers say it, or `webgpu/0.6.2`.
 * @example platformOf(navigator.userAgent) // 'Chrome/142, Linux'
 */
export function platformOf(userAgent: string): string {
  const [engine = 'another engine'] = ENGINE.exec(userAgent) ?? []
  const system = SYSTEMS.find((name) => userAgent.includes(name)) ?? 'another system'
  return `${engine}, ${system}`
}
