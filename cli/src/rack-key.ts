// The key that all machines of a rack have: from a file, or from the environment.
import { readFile } from 'node:fs/promises'
import { rackKeyIn } from '@starling-grid/client-node/rack'
import { describeError, GridError } from '@starling-grid/protocol'

export const RACK_KEY_VARIABLE = 'STARLING_RACK_KEY'
export const RACK_KEY_TEXT = `with the key that all machines of the rack have; ${RACK_KEY_VARIABLE} otherwise`

/** Undefined: none was given. @throws GridError 'usage' */
export async function rackKeyFrom(file: string | undefined): Promise<Buffer | undefined> {
  const text = file === undefined ? process.env[RACK_KEY_VARIABLE] : await readKeyFile(file)
  return text === undefined || text.trim() === '' ? undefined : rackKeyIn(text)
}

async function readKeyFile(file: string): Promise<string> {
  return readFile(file, 'utf8').catch((cause: unknown) => {
    throw new GridError('usage', `expected a file with a key, got ${file} (${describeError(cause)}); name another`, {
      cause,
    })
  })
}
