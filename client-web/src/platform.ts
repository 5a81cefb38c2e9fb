// What runs shaders in this browser: its engine with the version, and the system that it runs on. Kernels that are fast
// in one are slow in another. Pure.

/** All Chromium browsers say `Chrome`; Safari says its own version as `Version`. */
const ENGINE = /(Firefox|Chrome|Version)\/(\d{1,6})/
/** Those first whose names others mention, too. */
const SYSTEM = /Android|iPhone|iPad|Windows|CrOS|Mac OS|Linux/

/** @example platformOf(navigator.userAgent) // 'Chrome 142, Linux' */
export function platformOf(userAgent: string): string {
  const [, engine = 'another engine', version = ''] = ENGINE.exec(userAgent) ?? []
  const [system = 'another system'] = SYSTEM.exec(userAgent) ?? []
  return `${engine} ${version}, ${system}`
}
