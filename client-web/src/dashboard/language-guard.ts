// Some systems give browsers a language that is none ("en-US@posix"); uPlot hands it to Intl when it is loaded, which
// throws. Must be imported before uPlot.

try {
  Intl.getCanonicalLocales(navigator.language)
} catch {
  Object.defineProperty(navigator, 'language', { value: 'en', configurable: true })
}
