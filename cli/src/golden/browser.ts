// Golden cases in a headless browser.
import { type AdapterDescription, GridError } from '@starling-grid/protocol'
import type { GoldenResult } from '@starling-grid/volunteer/golden'
import { toBase64 } from '../browser/base64.ts'
import { openPage } from '../browser/page.ts'
import type { GoldenPlace, GoldenPlaceOptions } from './place.ts'

/** @throws GridError 'browser-missing', 'no-adapter' */
export async function browserPlace({ executor, adapter: wanted = '' }: GoldenPlaceOptions): Promise<GoldenPlace> {
  const page = await openPage({ modules: { page: new URL('./page.ts', import.meta.url) } })
  try {
    // Our own page: its answers are what its TypeScript says.
    const adapter = (await page.call('open', executor)) as AdapterDescription
    if (!`${adapter.name} ${adapter.vendor}`.toLowerCase().includes(wanted.toLowerCase()))
      throw new GridError(
        'no-adapter',
        `expected an adapter whose name contains "${wanted}", got ${adapter.name} from the browser; ` +
          'leave --adapter out',
      )
    return {
      adapter,
      close: () => page.close(),
      run: async (file) => (await page.call('run', toBase64(file))) as GoldenResult,
    }
  } catch (error) {
    await page.close()
    throw error
  }
}
