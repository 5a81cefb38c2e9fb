// Entry of the page of the HTTP interface.
import '@fontsource-variable/inter/wght.css'
import '../style/theme.css'
import '../style/api.css'
import { ROUTES } from '@starling-grid/protocol'
import { render } from 'preact'
import { takeOwnerToken } from '../live/owner-token.ts'
import type { ApiDocument } from './document.ts'
import { ApiPage } from './page.tsx'

const app = document.getElementById('app')
const response = await fetch(ROUTES.openapi)
if (app !== null && response.ok)
  render(<ApiPage document={(await response.json()) as ApiDocument} token={takeOwnerToken() ?? ''} />, app)
else if (app !== null)
  render(<p>The coordinator answered HTTP {response.status} instead of its description. Reload this page.</p>, app)
