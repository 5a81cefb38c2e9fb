// A page in a window of its own that can be minimized. Pages that Playwright opens always count as visible, since it
// keeps the focus emulated on each. So this one is opened past it, over the browser's own protocol.
import type { Browser, CDPSession } from 'playwright-core'

export class OwnWindow {
  readonly #browser: CDPSession
  readonly #windowId: number
  readonly #sessionId: string
  #calls = 0

  static async open(browser: Browser, url: string): Promise<OwnWindow> {
    const session = await browser.newBrowserCDPSession()
    const { targetId } = await session.send('Target.createTarget', { url, newWindow: true })
    const { windowId } = await session.send('Browser.getWindowForTarget', { targetId })
    const { sessionId } = await session.send('Target.attachToTarget', { targetId, flatten: false })
    return new OwnWindow(session, windowId, sessionId)
  }

  private constructor(browser: CDPSession, windowId: number, sessionId: string) {
    this.#browser = browser
    this.#windowId = windowId
    this.#sessionId = sessionId
  }

  async minimize(): Promise<void> {
    await this.#browser.send('Browser.setWindowBounds', {
      windowId: this.#windowId,
      bounds: { windowState: 'minimized' },
    })
  }

  async restore(): Promise<void> {
    await this.#browser.send('Browser.setWindowBounds', { windowId: this.#windowId, bounds: { windowState: 'normal' } })
  }

  /** Resolves when the page has such an element. */
  async whenThere(selector: string): Promise<void> {
    const wanted = JSON.stringify(selector)
    await this.evaluate(
      `new Promise((resolve) => { const look = () => document.querySelector(${wanted}) ? resolve(true) : ` +
        'setTimeout(look, 50); look() })',
    )
  }

  /** The value of an expression in the page. */
  async evaluate(expression: string): Promise<unknown> {
    const id = ++this.#calls
    const answer = new Promise<unknown>((resolve) => {
      const listen = ({ sessionId, message }: { sessionId: string; message: string }): void => {
        const { id: answered, result } = JSON.parse(message) as {
          id?: number
          result?: { result?: { value?: unknown } }
        }
        if (sessionId !== this.#sessionId || answered !== id) return
        this.#browser.off('Target.receivedMessageFromTarget', listen)
        resolve(result?.result?.value)
      }
      this.#browser.on('Target.receivedMessageFromTarget', listen)
    })
    await this.#browser.send('Target.sendMessageToTarget', {
      sessionId: this.#sessionId,
      message: JSON.stringify({
        id,
        method: 'Runtime.evaluate',
        params: { expression, awaitPromise: true, returnByValue: true },
      }),
    })
    return answer
  }
}
