// Why this page cannot lend anything, in one sentence of cause and one next step. Pure: the browser is a parameter.

export type Reason =
  | 'insecure-context'
  | 'no-webgpu'
  | 'no-adapter'
  | 'no-key'
  | 'adapter-limit'
  | 'device-lost'
  | 'link-lost'
  | 'grid-full'
  | 'no-invite'
  | 'old-page'
  | 'refused'
  | 'broken'

export interface Refusal {
  readonly reason: Reason
  readonly cause: string
  readonly nextStep: string
  /** pressing the button again may help */
  readonly again: boolean
}

export type Browser = 'chrome' | 'edge' | 'firefox' | 'safari' | 'other'

export interface Surroundings {
  readonly secure: boolean
  readonly webgpu: boolean
  readonly browser: Browser
  /** of the page, for example "http:" and "192.168.0.7:8080" */
  readonly host: string
}

export function browserOf(userAgent: string): Browser {
  if (/Firefox\/|FxiOS\//.test(userAgent)) return 'firefox'
  if (/Edg\//.test(userAgent)) return 'edge'
  if (/Chrome\/|CriOS\//.test(userAgent)) return 'chrome'
  return /Safari\//.test(userAgent) ? 'safari' : 'other'
}

/** What is wrong, or slower than it could be, before anybody pressed anything. */
export function refusalAtSight(here: Surroundings): Refusal | null {
  if (!here.secure) return insecure(here.host)
  if (!here.webgpu)
    return {
      reason: 'no-webgpu',
      cause: 'This browser has no WebGPU: the processor computes instead of the graphics processor, more slowly.',
      nextStep: GET_WEBGPU[here.browser],
      again: true,
    }
  return null
}

/** Never names hardware: over http a browser hides WebGPU whatever the machine has. */
function insecure(host: string): Refusal {
  return {
    reason: 'insecure-context',
    cause: 'This page came over plain http from another machine, and browsers let such pages do very little.',
    nextStep:
      `Open https://${host} instead. If that does not answer, ` +
      'ask the person who gave you this link to start the coordinator with --https.',
    again: false,
  }
}

const GET_WEBGPU: Readonly<Record<Browser, string>> = {
  chrome:
    'Update Chrome to 121 or newer. On Linux, also set chrome://flags/#enable-unsafe-webgpu to Enabled and ' +
    'restart Chrome.',
  edge:
    'Update Edge to 121 or newer. On Linux, also set edge://flags/#enable-unsafe-webgpu to Enabled and restart ' +
    'Edge.',
  firefox:
    'Update Firefox to 145 or newer, or set dom.webgpu.enabled to true in about:config. ' +
    'Chrome and Edge have it on every system.',
  safari: 'Update to Safari 26 (macOS 26, iOS 26). On an older system, open this page in Chrome.',
  other: 'Open this page in a current Chrome, Edge, Firefox or Safari.',
}

const FREE_ADAPTER: Readonly<Record<Browser, string>> = {
  chrome:
    'Turn on "Use graphics acceleration when available" in chrome://settings/system, restart Chrome, ' +
    'and look at the WebGPU line of chrome://gpu if it stays.',
  edge:
    'Turn on "Use graphics acceleration when available" in edge://settings/system, restart Edge, ' +
    'and look at the WebGPU line of edge://gpu if it stays.',
  firefox: 'Look at "WebGPU" in about:support for what blocks it, update the graphics driver, and restart Firefox.',
  safari: 'Restart Safari, and check in Settings, Advanced, Feature Flags that WebGPU is on.',
  other: "Turn on hardware acceleration in the browser's settings and restart it.",
}

const GET_ED25519: Readonly<Record<Browser, string>> = {
  chrome: 'Update Chrome to 137 or newer.',
  edge: 'Update Edge to 137 or newer.',
  firefox: 'Update Firefox to 129 or newer.',
  safari: 'Update to Safari 17 or newer.',
  other: 'Open this page in a current Chrome, Edge, Firefox or Safari.',
}

/** What went wrong after the button was pressed: a code of the protocol, or 'internal'. */
// oxlint-disable-next-line max-lines-per-function -- a table of codes and the words for each
export function refusalOf(code: string, message: string, browser: Browser): Refusal {
  switch (code) {
    case 'no-adapter':
      return {
        reason: 'no-adapter',
        cause: 'This browser has WebGPU, but found no graphics adapter that it may use.',
        nextStep: FREE_ADAPTER[browser],
        again: true,
      }
    case 'no-key':
      return {
        reason: 'no-key',
        cause: 'This browser cannot make the key that a volunteer signs with: it has no Ed25519.',
        nextStep: GET_ED25519[browser],
        again: false,
      }
    case 'adapter-limit':
      return {
        reason: 'adapter-limit',
        cause: message,
        nextStep: 'Lend a device with more graphics memory instead; the link is the same.',
        again: false,
      }
    case 'device-lost':
      return {
        reason: 'device-lost',
        cause: 'The browser lost the graphics device: it slept, its driver restarted, or something else needed it.',
        nextStep: 'Press the button to continue. Counted samples stay counted.',
        again: true,
      }
    case 'link-lost':
    case 'link-timeout':
      return {
        reason: 'link-lost',
        cause: `The connections to other volunteers could not be opened: ${message}`,
        nextStep: 'Press the button to try again. A VPN or a strict firewall may be in the way.',
        again: true,
      }
    case 'invite-required':
      return {
        reason: 'no-invite',
        cause: 'This coordinator takes invited volunteers only, and you have no valid invite.',
        nextStep: 'Ask the person who runs it for an invite link, and open that link in this browser.',
        again: false,
      }
    case 'grid-full':
      return {
        reason: 'grid-full',
        cause: 'This coordinator is full.',
        nextStep: 'Press the button again in a few minutes, when a volunteer has left.',
        again: true,
      }
    case 'protocol-version':
    case 'model-hash':
      return {
        reason: 'old-page',
        cause: 'The coordinator was updated, and this page is of an older version.',
        nextStep: 'Reload this page.',
        again: false,
      }
    case 'internal':
      return {
        reason: 'broken',
        cause: `Something broke in this page: ${message}`,
        nextStep: 'Reload it. If it happens again, report this sentence to the owner of the job.',
        again: true,
      }
    default:
      return {
        reason: 'refused',
        cause: message,
        nextStep: 'Press the button to try again, or ask the owner of the job.',
        again: true,
      }
  }
}
