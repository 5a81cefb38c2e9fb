// Colours on a terminal and nowhere else: what goes into a pipe is read by programs, whatever FORCE_COLOR says there.
import { createColors } from 'picocolors'

export type Colors = ReturnType<typeof createColors>

export function colorsFor(out: NodeJS.WriteStream): Colors {
  // Exactly `false`: left undefined, the library asks the environment again.
  return createColors(out.isTTY === true && !process.env['NO_COLOR'])
}
