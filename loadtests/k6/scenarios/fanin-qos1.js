import { fanin } from './fanin.js'

const scenario = fanin(1)
export const options = scenario.options
export const { receive, publish, teardown } = scenario
