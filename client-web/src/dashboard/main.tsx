// Entry of the dashboard.
import './language-guard.ts'
import '@fontsource-variable/inter/wght.css'
import '../style/theme.css'
import '../style/ring-picture.css'
import '../style/dashboard.css'
import '../style/write.css'
import { render } from 'preact'
import { createLiveRun } from '../live/live-run.ts'
import { askedJob } from '../live/open-jobs.ts'
import { takeOwnerToken } from '../live/owner-token.ts'
import { DashboardPage } from './page.tsx'

const live = createLiveRun({ token: takeOwnerToken(), job: askedJob(location.search) })
const app = document.getElementById('app')
if (app !== null) render(<DashboardPage live={live} />, app)
live.start()
