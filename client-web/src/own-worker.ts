// Workers of our own pages. Under Trusted Types (W3C, "Trusted Types") a script's address is one that a policy made;
// the header of every page names this policy and allows no other, so that no text can become a script, whatever a
// defect does.

interface ScriptPolicy {
  createScriptURL(url: string): string
}

interface TrustedTypesFactory {
  createPolicy(name: string, rules: ScriptPolicy): ScriptPolicy
}

/** As in coordinator/src/net/server.ts. */
const POLICY = 'starling'

/** One in each page and each Worker: a second of the name is refused. Undefined: a browser without Trusted Types. */
const policy = (globalThis as { readonly trustedTypes?: TrustedTypesFactory }).trustedTypes?.createPolicy(POLICY, {
  createScriptURL: ownScript,
})

/** @throws TypeError when the script would come from elsewhere */
function ownScript(url: string): string {
  const { origin } = new URL(url, location.href)
  if (origin !== location.origin) throw new TypeError(`expected a script of ${location.origin}, got one of ${origin}`)
  return url
}

/** @param url of a script that the build made */
export const startOwnWorker = (url: string): Worker =>
  new Worker(policy?.createScriptURL(url) ?? ownScript(url), { type: 'module' })
