// Which adapter tests compute on.
import { adapterEnvironment, type AdapterWish } from './adapter-environment.ts'

export { adapterEnvironment }

const SWIFT_SHADER: AdapterWish = { adapter: 'SwiftShader' }

/**
 * A GPU when there is one. Of the two software drivers the bundled SwiftShader: lavapipe computes faster, but takes
 * seconds to compile a kernel, and tests compile hundreds. Golden vectors are run on both
 * (client-node/test/golden-adapters.test.ts).
 */
export async function testAdapter(): Promise<AdapterWish> {
  const found = await adapterEnvironment()
  if (
    !found.description.includes('llvmpipe') ||
    (await adapterEnvironment(SWIFT_SHADER)).description.startsWith('none')
  )
    return {}
  return SWIFT_SHADER
}
