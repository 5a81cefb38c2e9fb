#!/usr/bin/env node
// Where every command begins. Kept to what an old Node can parse, so that it gets as far as the sentence below.
const needed = [20, 19]
const found = process.versions.node.split('.').map(Number)

if (found[0] < needed[0] || (found[0] === needed[0] && found[1] < needed[1])) {
  console.error(
    'Starling needs Node ' + needed.join('.') + ' or later, and this is Node ' + process.versions.node + '.',
  )
  console.error('Get a newer one from https://nodejs.org or with your version manager.')
  process.exit(1)
} else {
  import('./command-line.mjs').then(function (commandLine) {
    return commandLine.run(process.argv.slice(2))
  })
}
