// The HTTP API as the console uses it: each user makes a broker with a credential, connects a device with it, finds the
// device in the list of clients, and deletes the broker. Every answer is compared with what was written.

import { check } from 'k6'
import { Counter, Trend } from 'k6/metrics'
import * as lib from './lib.js'
import { ask, broker, tenant } from './tenant.js'

// Below what the API lets one token ask.
const rate = lib.number('RATE', 4)
const cycles = new Counter('api_cycles')
const cycle = new Trend('api_cycle_duration', true)

export const options = {
  summaryTrendStats: lib.statistics,
  scenarios: {
    use: {
      executor: 'constant-arrival-rate', exec: 'use', rate, timeUnit: '1s', duration: `${lib.seconds}s`,
      preAllocatedVUs: Math.max(1, 2 * rate),
    },
  },
  thresholds: {
    checks: ['rate==1'],
    // An iteration that throws does not come to its end, and one that cannot begin in time is dropped.
    api_cycle_duration: [`p(99)<${lib.number('CYCLE_P99_MS', 5000)}`],
    api_cycles: [`count>=${Math.floor(rate * lib.seconds * 0.9)}`],
    http_req_failed: ['rate==0'],
    http_req_duration: [`p(95)<${lib.number('HTTP_P95_MS', 1000)}`],
    mqtt_errors: ['count==0'],
  },
}

export const setup = () => tenant('api')

export async function use(of) {
  const began = Date.now()
  const display = `plant ${__VU}-${__ITER}`
  const { headers } = of
  const { path, login } = broker(of, { display })
  const read = ask('GET', path, { headers, name: 'broker' })

  const device = lib.client('pump', login)
  await device.connect()
  const { items } = ask('GET', `${path}/clients`, { headers, name: 'clients' })
  await device.end()
  ask('DELETE', path, { headers, name: 'broker', expected: 204 })
  ask('GET', path, { headers, name: 'broker', expected: 404 })
  check(null, {
    'a broker is read as it was written': () => read.display_name === display,
    'a connected device is listed': () => items.some(client => client.client_id === lib.id('pump')),
  })
  cycle.add(Date.now() - began)
  cycles.add(1)
}
