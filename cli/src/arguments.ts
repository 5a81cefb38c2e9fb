// What several commands read from their command lines, refused in words.
import { DEFAULT_HOST } from '@starling-grid/protocol'
import { InvalidArgumentError, Option } from 'commander'

const MAX_PORT = 65_535
/** beside DEFAULT_PORT, and above the ports that need rights */
const DEFAULT_HTTPS_PORT = 8443

export function readPort(text: string | number): number {
  const port = Number(text)
  if (String(text).trim() === '' || !Number.isInteger(port) || port < 0 || port > MAX_PORT)
    throw new InvalidArgumentError(`expected a whole number from 0 to ${MAX_PORT}`)
  return port
}

export function httpsOption(): Option {
  const text = 'also listen for other machines, whose browsers lend their GPU to https addresses only'
  return new Option('--https [port]', text).argParser(readPort).preset(DEFAULT_HTTPS_PORT)
}

function hostOption(): Option {
  return new Option('--host <host>', 'address to listen on; 0.0.0.0 for all of this machine').default(DEFAULT_HOST)
}

function certificateOptions(): readonly Option[] {
  const made = 'certificate of --https, as PEM with those that signed it; made at the first start otherwise'
  return [new Option('--cert <file>', made), new Option('--key <file>', 'its private key, as PEM')]
}

/** Where other machines reach the coordinator of a command. */
export function doorOptions(): readonly Option[] {
  return [hostOption(), httpsOption(), ...certificateOptions(), publicUrlOption()]
}

function publicUrlOption(): Option {
  return new Option('--public-url <url>', 'how people reach this coordinator through a proxy').argParser(readUrl)
}

function readUrl(text: string): URL {
  if (!/^https?:/.test(text) || !URL.canParse(text))
    throw new InvalidArgumentError('expected an address such as https://grid.example.org')
  return new URL(text)
}

/** A parser for commander: a whole number from `min` on. */
export function wholeNumber(min: number): (text: string) => number {
  return (text) => {
    const value = Number(text)
    if (!Number.isInteger(value) || value < min)
      throw new InvalidArgumentError(`expected a whole number from ${min} on`)
    return value
  }
}

/** A parser for commander: whole numbers separated by commas. */
export function wholeNumbers(text: string): number[] {
  return text.split(',').map(wholeNumber(1))
}
