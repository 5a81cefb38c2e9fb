// `doctor [URL] [--json]`: what does this machine offer, and what is to be done about the rest?
import { Command } from 'commander'
import type { CheckResult } from '../doctor/check.ts'
import { checkCoordinator } from '../doctor/coordinator.ts'
import { checkAdapter, checkBrowser, checkDisk, checkNode } from '../doctor/this-machine.ts'
import { checkWebRtc } from '../doctor/webrtc.ts'
import { colorsFor } from '../terminal/colors.ts'

const NAME_WIDTH = 'coordinator'.length
const STATE_WIDTH = 'warning'.length

export async function doctor(argv: string[]): Promise<number> {
  const program = new Command('starling doctor')
    .description(
      'Checks Node, adapter, browser, WebRTC, disk and, given its URL, the coordinator. ' +
        'Exit code 1 if something will not work.',
    )
    .argument('[url]', 'address of a coordinator')
    .option('--data-dir <folder>', "the coordinator's data folder", 'starling-data')
    .option('--json', 'print one JSON value on the last line of stdout')
    .exitOverride()
    .parse(argv, { from: 'user' })
  const { dataDir, json } = program.opts<{ dataDir: string; json?: boolean }>()
  const [url] = program.args
  const print = json ? console.error : console.log
  const checks: CheckResult[] = []
  // All at once, since some wait for seconds; printed in their order.
  for (const pending of begin(url, dataDir))
    for (const check of await pending) {
      print(asText(check, json ? process.stderr : process.stdout))
      checks.push(check)
    }
  if (json) console.log(JSON.stringify({ checks }))
  return checks.some(({ state }) => state === 'failure') ? 1 : 0
}

function begin(url: string | undefined, dataFolder: string): Promise<CheckResult[]>[] {
  const one = async (check: CheckResult | Promise<CheckResult>) => [await check]
  return [
    one(checkNode()),
    one(checkAdapter()),
    one(checkBrowser()),
    one(checkWebRtc()),
    one(checkDisk(dataFolder)),
    ...(url === undefined ? [] : [checkCoordinator(url)]),
  ]
}

function asText({ name, state, detail, cure }: CheckResult, to: NodeJS.WriteStream): string {
  const colors = colorsFor(to)
  const paint = { ok: colors.green, warning: colors.yellow, failure: colors.red }[state]
  const first = `${paint(state.padEnd(STATE_WIDTH))}  ${name.padEnd(NAME_WIDTH)}  ${detail}`
  return cure === null ? first : `${first}\n${' '.repeat(STATE_WIDTH + 2 + NAME_WIDTH + 2)}${cure}`
}
