// The headless browser of whole-grid tests.
export { launchBrowser, type LaunchOptions } from '@starling-grid/client-node'
