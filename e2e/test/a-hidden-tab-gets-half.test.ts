import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import { launchBrowser } from '@starling-grid/client-node'
import { ensureWebPage } from '@starling-grid/client-web/build'
import type { MemberView, RunView } from '@starling-grid/protocol'
import { QUICK, smallJob } from './small-job.ts'
import { OwnWindow } from './window-of-its-own.ts'

/** Far more than the test needs: the run is stopped. */
const STEPS = 5000
/**
 * Between an assignment as its speed gives it and half of it; speeds move on by some percent from the plan that had the
 * share.
 */
const BETWEEN = 0.72

function members(run: RunView | undefined): { readonly tab: MemberView; readonly node: MemberView } | undefined {
  const [tab, node] = (['tab', 'node'] as const).map((client) =>
    run?.members.find((member) => member.client === client && member.fraction !== null),
  )
  return tab && node && { tab, node }
}

/** Its share over the other's, by their speeds: 1 for two that are seen. */
function partOfItsSpeed(run: RunView | undefined): number {
  const both = members(run)
  if (both === undefined) return Number.NaN
  const { tab, node } = both
  return ((tab.fraction ?? 0) / (node.fraction ?? 0)) * (node.samplesPerSecond / tab.samplesPerSecond)
}

test(
  'a tab whose window is minimized gets half the assignment and twice the lease, and both back when it is seen again',
  { timeout: 400_000 },
  async () => {
    const grid = await Grid.start({ timing: QUICK, webRoot: await ensureWebPage(() => undefined) })
    const browser = await launchBrowser()
    try {
      await grid.submit(smallJob({ stop: { steps: STEPS }, minVolunteers: 2 }))
      // as fast as the tab: of a much slower one's neighbour less is believed than what it says
      grid.addVolunteer({ executor: 'wasm' })
      const window = await OwnWindow.open(browser, grid.url)
      await window.whenThere('button[data-primary]')
      await window.evaluate('document.querySelector("button[data-primary]").click()')
      await grid.watch.waitFor(
        'the tab to take part',
        ({ run }) => run?.phase === 'ring' && members(run) !== undefined && run.version.v > 20,
      )
      const lease = members(grid.watch.run)?.tab.leaseMs ?? 0
      const settled = (hidden: boolean) => (watch: Grid['watch']) => {
        const tab = members(watch.run)?.tab
        const part = partOfItsSpeed(watch.run)
        return tab?.hidden === hidden && (hidden ? part < BETWEEN : part > BETWEEN) && { part, leaseMs: tab.leaseMs }
      }
      await grid.watch.waitFor('a share by its speed', settled(false))
      await window.minimize()
      const hidden = await grid.watch.waitFor('half the assignment', settled(true))
      assert.equal(hidden.leaseMs, 2 * lease)
      await window.restore()
      const seen = await grid.watch.waitFor('its whole assignment again', settled(false))
      assert.equal(seen.leaseMs, lease)
      assert.equal(grid.watch.run?.departed.length, 0, 'it never left')
    } finally {
      await browser.close()
      await grid.stop()
    }
  },
)
