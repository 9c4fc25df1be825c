// A reporter for node --test: prints its results as the lines that run.sh reads.

export default async function* lines(events) {
  for await (const { type, data } of events) {
    if (type === 'test:stdout' || type === 'test:stderr') yield data.message
    if (type !== 'test:pass' && type !== 'test:fail') continue
    // A test that --test-name-pattern leaves out is no check of this suite.
    if (data.skip === 'test name does not match pattern') continue
    const name = `${process.env.SUITE}: ${data.name}`
    if (data.skip) yield `SKIPPED: ${name}: ${data.skip}\n`
    else if (type === 'test:pass') yield `ok ${name}\n`
    else {
      const error = data.details.error?.cause ?? data.details.error
      yield `FAILED: ${name}: ${String(error?.message ?? error).split('\n').slice(0, 3).join(' ').slice(0, 300)}\n`
      if (error?.stack) yield `${error.stack}\n`
    }
  }
}
