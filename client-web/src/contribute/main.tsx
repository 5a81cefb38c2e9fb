// Entry of the contribute page: connects the live run, the visitor's session and the page.
import '@fontsource-variable/inter/wght.css'
import '../style/theme.css'
import '../style/ring-picture.css'
import '../style/contribute.css'
import { render } from 'preact'
import { createLiveRun } from '../live/live-run.ts'
import { askedJob } from '../live/open-jobs.ts'
import { takeLuggage } from './lend-on.ts'
import { ContributePage } from './page.tsx'
import { browserOf, refusalAtSight, type Surroundings } from './refusal.ts'
import { prefetchWorker, Session } from './session.ts'
import { takeInvite } from './visitor-invite.ts'

const here: Surroundings = {
  secure: isSecureContext,
  webgpu: 'gpu' in navigator && navigator.gpu !== undefined,
  browser: browserOf(navigator.userAgent),
  host: location.host,
}

const luggage = takeLuggage()
takeInvite()
addEventListener('hashchange', takeInvite)
const session = new Session()
const run = createLiveRun({
  job: askedJob(location.search),
  // a tab that lends goes there with what it lends
  mayLeave: () => session.state.value.type !== 'running',
})
const app = document.getElementById('app')
if (app !== null) render(<ContributePage run={run} session={session} here={here} />, app)
run.start()
if (luggage !== undefined && refusalAtSight(here)?.again !== false) void session.start(luggage)
if (refusalAtSight(here)?.again !== false) addEventListener('load', () => setTimeout(prefetchWorker))
// Closing or leaving the page: the Worker sends `leave` while it can; otherwise the closing socket ends the session.
addEventListener('pagehide', () => session.leave())
