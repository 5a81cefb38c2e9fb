// How people name adapters: by a part of the name, whatever the case.

/** Mesa's software driver is lavapipe, and its device llvmpipe. */
const ALSO_CALLED: readonly (readonly [name: string, also: string])[] = [['llvmpipe', 'lavapipe']]

/** `names`: what the adapter and its driver say of themselves */
export function isNamed(text: string, names: readonly string[]): boolean {
  const all = names.join(' ').toLowerCase()
  const also = ALSO_CALLED.filter(([name]) => all.includes(name)).map(([, name]) => name)
  return [all, ...also].join(' ').includes(text.toLowerCase())
}
