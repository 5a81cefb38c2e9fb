// A page of ours in a headless browser, called like a library.
export { fromBase64, toBase64 } from './base64.ts'
export { bundle } from './bundle.ts'
export { openPage, openPages, type OpenPage } from './page.ts'
